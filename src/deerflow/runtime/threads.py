"""Operations on a whole thread: its rows, state, title and files are changed, copied and deleted together."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.types import Command

from deerflow.agents.allowed_calls import AllowedCalls
from deerflow.agents.langgraph_beta import hold_messages
from deerflow.agents.middlewares.title import title_from_question
from deerflow.config import Paths, TitleSettings
from deerflow.domain import RunRecord, RunRequest, RunStatus, Thread, ThreadStatus, new_id
from deerflow.errors import ConflictError, NotFoundError
from deerflow.files.copying import copy_thread
from deerflow.memory import MemoryService
from deerflow.runtime.event_log import StreamBridge
from deerflow.runtime.feedback import forget_feedback
from deerflow.runtime.inputs import parse_messages
from deerflow.runtime.interrupts import waiting_interrupts
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.usage import SideUsage
from deerflow.sandbox import remove_tree
from deerflow.storage import Storage

logger = logging.getLogger(__name__)

_LINGER_SECONDS = 5
"""How long a thread that is deleted after its run stays readable."""
_SHUTDOWN_SECONDS = 2
_TEMPORARY = ("deerflow", "temporary-threads")
"""Threads to delete after their run; a server may die before it has deleted one."""
_MIN_AGE = timedelta(minutes=1)
_PAGE = 1000


class Threads:
    """Operations on threads that touch more than one store."""

    def __init__(
        self,
        *,
        storage: Storage,
        paths: Paths,
        bridge: StreamBridge,
        states: ThreadStates,
        side_usage: SideUsage,
        memories: MemoryService,
        titles: Callable[[], TitleSettings],
    ) -> None:
        self._storage = storage
        self._paths = paths
        self._bridge = bridge
        self._states = states
        self._side_usage = side_usage
        self._memories = memories
        self._titles = titles

    async def is_busy(self, thread_id: str) -> bool:
        """Return whether a run of the thread is running or pending."""
        for status in (RunStatus.RUNNING, RunStatus.PENDING):
            if await self._storage.runs.of_thread(thread_id, status=status, limit=1):
                return True
        return False

    async def update_state(
        self,
        thread_id: str,
        values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
    ) -> None:
        """Update a thread's state on a client's request; a new title also changes the thread's row.

        An update of a past checkpoint keeps the title that users gave the thread since.
        """
        parts = [values or {}] if isinstance(values, Mapping | None) else values
        titles = [part["title"] for part in parts if part.get("title")]
        if checkpoint_id and values is not None and not titles:
            past = (thread_id, checkpoint_id)
            title = await title_set_by_user(self._storage, self._states, *past, self._titles())
            values = values if title is None else [*parts, {"title": title}]
        await self._states.update(thread_id, values, checkpoint_id=checkpoint_id, as_node=as_node)
        thread = await self._storage.threads.get(thread_id)
        waits = thread.status is ThreadStatus.INTERRUPTED
        await self._storage.threads.update(
            thread_id,
            title=titles[-1] if titles else None,
            interrupts=await waiting_interrupts(self._states, thread_id) if waits else None,
        )

    async def copy(self, thread: Thread) -> Thread:
        """Return a new thread with the same conversation and files."""
        folders = (self._paths.thread(thread.user_id, name) for name in (thread.id, new_id()))
        return await copy_thread(self._storage, thread, *folders)

    async def prune_checkpoints(self, thread_id: str) -> int:
        """Delete all but the latest checkpoint of a thread and of its sub-agents; return how many."""
        checkpoints = self._storage.checkpoints
        for namespace in await checkpoints.anamespaces(thread_id):
            await hold_messages(checkpoints, namespace)
        return await checkpoints.akeep_latest(thread_id)

    async def delete(self, thread_id: str, user_id: str) -> None:
        """Delete a thread with its runs, checkpoints and files."""
        # The check for active runs is in the same transaction: a run admitted meanwhile must not vanish.
        await self._storage.threads.delete(thread_id, unless_busy=True)
        await self._storage.store.adelete(_TEMPORARY, thread_id)
        await forget_feedback(self._storage.store, thread_id)
        await AllowedCalls(self._storage.store, user_id).forget_thread(thread_id)
        self._memories.learner.forget(thread_id=thread_id)
        await self._side_usage.forget(thread_id)
        self._bridge.forget(thread_id)
        await asyncio.to_thread(remove_tree, self._paths.thread(user_id, thread_id).root)

    async def mark_temporary(self, run_id: str, request: RunRequest) -> None:
        """Record, before the run is admitted, that its thread is to be deleted after it."""
        value = {"run": run_id, "user": request.user_id}
        await self._storage.store.aput(_TEMPORARY, request.thread_id, value, index=False)

    async def delete_temporary(self, run: RunRecord) -> None:
        """Delete a thread that was created only for this run."""
        if run.request.deletes_thread:
            try:
                await asyncio.sleep(_LINGER_SECONDS)
            except asyncio.CancelledError:  # shutdown: delete now, else the next process does
                async with asyncio.timeout(_SHUTDOWN_SECONDS):
                    await self.delete(run.thread_id, run.user_id)
                raise
            await self.delete(run.thread_id, run.user_id)

    async def delete_left_behind(self, *, now: datetime | None = None) -> None:
        """Delete threads whose run has ended and that a server failed to delete."""
        before = (now or datetime.now(UTC)) - _MIN_AGE
        for item in await self._storage.store.asearch(_TEMPORARY, limit=_PAGE):
            if item.created_at < before and await self._is_over(item.value["run"], before):
                try:
                    await self.delete(item.key, item.value["user"])
                except NotFoundError:
                    await self._storage.store.adelete(_TEMPORARY, item.key)
                except ConflictError:
                    continue  # another run has started: delete the thread after it
                except OSError as error:  # must not affect the other threads and later deletions
                    logger.warning("the files of thread %s could not be deleted: %s", item.key, error)

    async def _is_over(self, run_id: str, before: datetime) -> bool:
        try:
            run = await self._storage.runs.get(run_id)
        except NotFoundError:
            return True  # it was never admitted, or is deleted already
        return run.status.is_terminal and run.updated_at < before


def with_title(request: RunRequest, settings: TitleSettings) -> RunRequest:
    """Return a request with a title cut from its question, for a thread that has none."""
    raw = (request.input or {}).get("messages")
    if not settings.enabled or not raw:
        return request
    messages: list[AnyMessage] = parse_messages(raw)  # type: ignore[assignment]
    return replace(request, title=title_from_question(messages, settings) or None)


async def title_set_by_user(
    storage: Storage, states: ThreadStates, thread_id: str, checkpoint_id: str, settings: TitleSettings
) -> str | None:
    """Return a thread's title if it was not cut from its question and a past state has another.

    A run that continues from that state would otherwise bring the other title back.
    """
    title = (await storage.threads.get(thread_id)).title
    state = await states.latest(thread_id)
    if title is None or state is None:
        return None
    past = await states.latest(thread_id, checkpoint_id=checkpoint_id)
    if past is not None and past.values.get("title") == title:
        return None
    is_cut = title == title_from_question(state.values.get("messages", ()), settings)
    return None if is_cut else title


def input_with_title(values: Any, title: str) -> Any:
    """Return a graph input that also sets the title, unless it sets one itself."""
    match values:
        case None:  # no input: continue, with a command that only updates
            return Command(update={"title": title})
        case Command(update=None):
            return replace(values, update={"title": title})
        case Command(update=dict(update)):
            return replace(values, update={"title": title, **update})
        case Command(update=list(pairs)):
            return replace(values, update=[("title", title), *pairs])
        case dict():
            return {"title": title, **values}
    return values
