"""Background work of a gateway: starts the runs of crons and calls webhooks when runs end."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord
from deerflow.errors import NotFoundError
from deerflow.gateway.run_request import RunCreate, to_request
from deerflow.scheduler import CronJob, CronStore, Scheduler, tick_key
from deerflow.scheduler.loop import CRON_ID


@asynccontextmanager
async def run_scheduler(deerflow: DeerFlow) -> AsyncIterator[Scheduler]:
    """Run the scheduler for the length of a block, if the settings enable it."""
    settings = deerflow.settings.scheduler
    scheduler = Scheduler(
        crons=CronStore(deerflow.storage.store),
        start=lambda cron, tick: start_run(deerflow, cron, tick),
        active=deerflow.runs.active,
        poll_seconds=settings.poll_interval_seconds,
        max_running=settings.max_concurrent_runs,
    )
    if not settings.enabled:
        yield scheduler
        return
    async with in_background(scheduler.run(), "scheduler"):
        yield scheduler


async def start_run(deerflow: DeerFlow, cron: CronJob, tick: datetime) -> RunRecord | None:
    """Start the run of a cron for a tick; None if the cron's thread no longer exists."""
    key = tick_key(cron, tick)
    if cron.thread_id is not None:
        try:
            await deerflow.storage.threads.get(cron.thread_id, cron.user_id)
        except NotFoundError:
            return None
    # Derived from the tick, so that concurrent servers create one thread and not two.
    thread_id = cron.thread_id or str(uuid.uuid5(uuid.NAMESPACE_URL, key))
    body = RunCreate(**cron.payload)
    request = await to_request(deerflow, body, thread_id=thread_id, user_id=cron.user_id, idempotency_key=key)
    return await deerflow.start_run(
        replace(
            request,
            input=_without_ids(request.input),
            metadata={**request.metadata, CRON_ID: cron.id},
            is_interactive=False,
            deletes_thread=cron.thread_id is None and cron.on_run_completed != "keep",
        )
    )


def _without_ids(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Remove message ids from an input: with an id, each run's message would replace the previous one."""
    messages = values.get("messages") if values else None
    if not isinstance(messages, list):
        return values
    new = [
        {key: value for key, value in message.items() if key != "id"}
        if isinstance(message, dict)
        else message
        for message in messages
    ]
    return {**(values or {}), "messages": new}


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run a task for the length of a block."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
