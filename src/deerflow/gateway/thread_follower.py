"""Follows the runs of a thread, one after the other, as they are started."""

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, RunStatus
from deerflow.errors import NotFoundError
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
