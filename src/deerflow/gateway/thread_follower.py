"""Follows the runs of a thread, one after the other, and streams their events."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, RunStatus, StreamEvent, number_in, seq_of
from deerflow.errors import NotFoundError
from deerflow.gateway.run_responses import batches_of
from deerflow.runtime import is_wanted
from deerflow.storage import thread_topic

_POLL_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""Poll intervals for new runs; usually a signal announces them first."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class ThreadRun:
    """A run and its index within the thread, from 0."""

    run: RunRecord
    index: int


class ThreadFollower:
    """The runs of one thread, for one reader."""

    def __init__(self, deerflow: DeerFlow, thread_id: str, user: str) -> None:
        self._deerflow = deerflow
        self._thread_id = thread_id
        self._user = user
        self._indices: dict[str, int] = {}

    async def new_runs(self) -> list[ThreadRun]:
        """Return the runs that are new since the last call, oldest first."""
        try:
            await self._deerflow.storage.threads.get(self._thread_id, self._user)
        except NotFoundError:
            return []  # does not exist yet, or not for this user
        new: list[RunRecord] = []
        while True:
            page = await self._deerflow.runs.of_thread(self._thread_id, limit=_PAGE, offset=len(new))
            unknown = [run for run in page if run.id not in self._indices]
            new += unknown
            if len(unknown) < _PAGE:
                break
        found = []
        for run in reversed(new):
            self._indices[run.id] = len(self._indices)
            found.append(ThreadRun(run, self._indices[run.id]))
        return found

    async def follow(
        self, runs: Sequence[ThreadRun], *, heartbeat_seconds: float
    ) -> AsyncGenerator[ThreadRun | None, None]:
        """Yield `runs` and then every new run, without end; None is a heartbeat while there is none."""
        with self._deerflow.storage.signals.watch(thread_topic(self._thread_id)) as arrivals:
            waiting = [*runs, *await self.new_runs()]
            polls, silent = 0, 0.0
            while True:
                run = await self._next(waiting)
                if run is not None:
                    polls, silent = 0, 0.0
                    yield run
                    continue
                began = time.monotonic()
                await arrivals.wait(_POLL_SECONDS[min(polls, len(_POLL_SECONDS) - 1)])
                polls, silent = polls + 1, silent + time.monotonic() - began
                if silent >= heartbeat_seconds:
                    silent = 0.0
                    yield None
                waiting += await self.new_runs()

    async def _next(self, waiting: list[ThreadRun]) -> ThreadRun | None:
        """Remove and return the oldest run; others may start before one with `after_seconds`."""
        for each in waiting:
            if each.run.request.after_seconds is None or not await self._is_pending(each.run):
                waiting.remove(each)
                return each
        return None

    async def _is_pending(self, run: RunRecord) -> bool:
        try:
            return (await self._deerflow.runs.get(run.id)).status is RunStatus.PENDING
        except NotFoundError:
            return False


_HEARTBEAT_SECONDS = 15.0
_MOST_SEARCHED = 100
"""How many of the latest runs are searched for the reader's last event."""


@dataclass(slots=True)
class ReaderPosition:
    """The position at which a reader of a thread resumes."""

    follower: ThreadFollower
    runs: Sequence[ThreadRun]
    """Known runs that the reader has not seen to their end; later ones follow."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """The last sequence number that the reader has, by run."""
    last: tuple[int, int] | None = None
    """Time and sequence number of the reader's last event."""
    compared: frozenset[str] | None = frozenset()
    """Runs whose events are compared with `last` only; None means all."""

    def is_new(self, run: RunRecord, event: StreamEvent) -> bool:
        """Return whether the reader has not seen an event."""
        if self.last is None or (self.compared is not None and run.id not in self.compared):
            return True
        return (event.unix_ms, event.seq) > self.last


async def position_of(
    deerflow: DeerFlow, thread_id: str, user: str, last_event_id: str | None
) -> ReaderPosition:
    """Return where a reader with this last event resumes; without one, at the runs in flight."""
    follower = ThreadFollower(deerflow, thread_id, user)
    runs = await follower.new_runs()
    unix_ms = number_in((last_event_id or "").partition("-")[0], default=-1)
    if unix_ms < 0:
        return ReaderPosition(follower, [each for each in runs if not each.run.status.is_terminal])
    last = (unix_ms, seq_of(last_event_id))
    # By the event itself: clocks are set back, and two runs may write within a millisecond. If two runs have
    # the same event id, the older run is taken: a duplicate event does less harm than a missing one.
    for index, each in list(enumerate(runs))[-_MOST_SEARCHED:]:
        if await _has(deerflow, each.run, last):
            older = [run for run in runs[:index] if _may_have_news(run.run, last)]
            compared = frozenset(run.run.id for run in older)
            return ReaderPosition(follower, [*older, *runs[index:]], {each.run.id: last[1]}, last, compared)
    return ReaderPosition(follower, [each for each in runs if _may_have_news(each.run, last)], {}, last, None)


async def thread_events(
    deerflow: DeerFlow, position: ReaderPosition, chosen: Collection[str]
) -> AsyncIterator[list[StreamEvent]]:
    """Yield the events of a thread's runs, one run after the other; empty batches are heartbeats.

    Args:
        chosen: LangGraph's modes for threads: `run_modes` are the modes that each run requested,
            `state_update` its states, `lifecycle` its start and end.
    """
    followed = position.follower.follow(position.runs, heartbeat_seconds=_HEARTBEAT_SECONDS)
    async with aclosing(followed):
        async for each in followed:
            if each is None:
                yield []
                continue
            run = each.run
            modes = _modes_of(run, chosen)
            async for batch in batches_of(
                deerflow, run, after_seq=position.seen.get(run.id, -1), modes=modes
            ):
                fresh = [
                    event for event in batch if position.is_new(run, event) and is_wanted(event.kind, modes)
                ]
                if fresh or not batch:
                    yield fresh


async def _has(deerflow: DeerFlow, run: RunRecord, last: tuple[int, int]) -> bool:
    """Return whether an event belongs to this run."""
    found = await deerflow.storage.events.read(run.id, after_seq=last[1] - 1, limit=1)
    return any((entry.unix_ms, entry.seq) == last for entry in found)


def _modes_of(run: RunRecord, chosen: Collection[str]) -> frozenset[str]:
    modes = set(run.request.stream_modes) if "run_modes" in chosen else set()
    if "state_update" in chosen:
        modes |= {"values", "checkpoints"}
    return frozenset(modes)


def _may_have_news(run: RunRecord, last: tuple[int, int]) -> bool:
    """Return whether a run may have published events since `last`, by its update time."""
    return not run.status.is_terminal or run.updated_at.timestamp() * 1000 >= last[0]
