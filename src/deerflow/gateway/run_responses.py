"""HTTP responses of runs: a stream of events, or the final values of their thread."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, RunStatus, StreamEvent, seq_of
from deerflow.gateway.deps import json_response
from deerflow.gateway.sse import EventStream
from deerflow.runtime import visible_values
from deerflow.runtime.legacy_streams import ClassicMessages, Converter, SubgraphFrames, convert_events


def location(run: RunRecord, way: Literal["stream", "join"] = "stream") -> dict[str, str]:
    """Return the headers with the URL of a run, and with the one to resume an interrupted response.

    LangGraph's clients append the latter to their API base URL, whichever it is.
    """
    path = f"/threads/{run.thread_id}/runs/{run.id}"
    return {"Content-Location": f"/api{path}", "Location": f"{path}/{way}"}


def event_stream(
    deerflow: DeerFlow,
    run: RunRecord,
    *,
    after: str | None = None,
    modes: tuple[str, ...] = (),
    cancel_on_disconnect: bool = False,
) -> EventStream:
    """Stream a run's events after the event id `after` to the end."""
    chosen = frozenset(modes or run.request.stream_modes)
    return EventStream(
        batches_of(deerflow, run, after_seq=seq_of(after), modes=chosen),
        modes=chosen,
        headers=location(run),
        watch=deerflow.watch,
        on_disconnect=partial(deerflow.runs.cancel_many, [run]) if cancel_on_disconnect else None,
    )


def batches_of(
    deerflow: DeerFlow, run: RunRecord, *, after_seq: int, modes: frozenset[str]
) -> AsyncIterator[list[StreamEvent]]:
    """Subscribe to a run; on request with whole messages (LangGraph's older form) and subgraph events."""
    converters: list[Converter] = []
    if run.request.stream_subgraphs:
        converters.append(SubgraphFrames().take)
    if "messages" in modes and "messages-tuple" not in modes:
        converters.append(ClassicMessages().take)
    if not converters:
        return deerflow.runs.subscribe(run.id, after_seq=after_seq)
    # Accumulated messages can only be built by reading from the start.
    return convert_events(deerflow.runs.subscribe(run.id), *converters, after_seq=after_seq)


async def wait_for(
    deerflow: DeerFlow, run: RunRecord, request: Request, *, cancel_on_disconnect: bool
) -> Response:
    """Wait until a run ends or its client disconnects."""
    waiting = asyncio.create_task(deerflow.runs.wait(run.id))
    try:
        while not waiting.done():
            await asyncio.wait((waiting,), timeout=0.5)
            if not waiting.done() and await request.is_disconnected():
                if cancel_on_disconnect:
                    await deerflow.runs.cancel_many([run])
                break
        else:
            await waiting  # re-raise: a failed wait must not look like a finished run
    finally:
        waiting.cancel()
    return await final_values(deerflow, run.id)


async def final_values(deerflow: DeerFlow, run_id: str) -> Response:
    """Return the values of a run's thread, or the run's error."""
    run = await deerflow.runs.get(run_id)
    headers = location(run, "join")
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        # Both the fields of DeerFlow 2 and the `__error__` by which LangGraph's clients detect a failure.
        failure = {"error": run.stop_reason, "message": run.error}
        failed = {"status": run.status, "error": run.error, "__error__": failure}
        return json_response(failed, headers=headers)
    snapshot = await deerflow.state.latest(run.thread_id)
    values: dict[str, Any] = visible_values(snapshot.values) if snapshot is not None else {}
    interrupts = [interrupt for task in snapshot.tasks for interrupt in task.interrupts] if snapshot else []
    if interrupts:
        values = {**values, "__interrupt__": interrupts}
    return json_response(values, headers=headers)
