"""One stream of events over all runs of a thread: replayed from the reader's position, then live."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from deerflow.app import DeerFlow
from deerflow.domain import END, RunRecord, RunStatus
from deerflow.errors import NotFoundError
from deerflow.gateway.protocol.events import ProtocolEvent, place_of, run_base
from deerflow.gateway.protocol.filters import EventFilter
from deerflow.gateway.protocol.translate import RunPlace, RunTranslator
from deerflow.storage import thread_topic

HEARTBEAT_SECONDS = 5.0
_LOOK_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""Poll intervals for new runs; usually a signal announces them first."""
_PAGE = 500

Batches = AsyncGenerator[list[ProtocolEvent], None]


class ThreadRuns:
    """The runs of a thread with their indices, kept up to date."""

    def __init__(self, deerflow: DeerFlow, thread_id: str, user: str) -> None:
        self._house = deerflow
        self._thread_id = thread_id
        self._user = user
        self._places: dict[str, int] = {}

    async def look(self) -> list[RunPlace]:
        """Return the runs that are new since the last call, oldest first."""
        try:
            await self._house.storage.threads.get(self._thread_id, self._user)
        except NotFoundError:
            return []  # does not exist yet, or not for this user
        fresh: list[RunRecord] = []
        while True:
            page = await self._house.runs.of_thread(self._thread_id, limit=_PAGE, offset=len(fresh))
            unknown = [run for run in page if run.id not in self._places]
            fresh += unknown
            if len(unknown) < _PAGE:
                break
        found = []
        for run in reversed(fresh):
            self._places[run.id] = len(self._places)
            found.append(RunPlace(run, self._places[run.id]))
        return found


class ThreadFeed:
    """Streams a thread's events to one reader until the reader disconnects."""

    def __init__(self, deerflow: DeerFlow, thread_id: str, user: str) -> None:
        self._house = deerflow
        self._thread_id = thread_id
        self._runs = ThreadRuns(deerflow, thread_id, user)
        self._ahead: list[RunPlace] = []

    async def follow(self, wanted: EventFilter) -> Batches:
        """Yield the requested events in batches, without end; an empty batch is a heartbeat."""
        with self._house.storage.signals.watch(thread_topic(self._thread_id)) as arrivals:
            runs = await self._runs.look()
            wanted = replace(wanted, since=_start(runs, wanted.since))
            self._ahead = [about for about in runs if about.place >= place_of(wanted.since or 0)]
            looks, silent = 0, 0.0
            while True:
                about = await self._next()
                if about is not None:
                    looks, silent = 0, 0.0
                    async with aclosing(self._follow_run(about, wanted)) as batches:
                        async for batch in batches:
                            yield batch
                    continue
                pause = _LOOK_SECONDS[min(looks, len(_LOOK_SECONDS) - 1)]
                began = time.monotonic()
                await arrivals.wait(pause)
                looks, silent = looks + 1, silent + time.monotonic() - began
                if silent >= HEARTBEAT_SECONDS:
                    silent = 0.0
                    yield []
                self._ahead += await self._runs.look()

    async def _next(self) -> RunPlace | None:
        """Return the run to follow next: the oldest one that is not waiting for its `after_seconds`."""
        if not self._ahead:
            return None
        for about in self._ahead:
            if about.run.request.after_seconds and await self._is_pending(about):
                continue  # delayed (`after_seconds`): other runs may start before it
            self._ahead.remove(about)
            return about
        return None

    async def _is_pending(self, about: RunPlace) -> bool:
        try:
            return (await self._house.runs.get(about.run.id)).status is RunStatus.PENDING
        except NotFoundError:
            return False

    async def _follow_run(self, about: RunPlace, wanted: EventFilter) -> Batches:
        translator = RunTranslator(about, channels=wanted.channels)
        entries = self._house.runs.subscribe(about.run.id, heartbeat_seconds=HEARTBEAT_SECONDS)
        since = -1 if wanted.since is None else wanted.since
        spoke = time.monotonic()
        try:
            async for batch in entries:
                events: list[ProtocolEvent] = []
                for entry in batch:
                    if entry.kind == END:
                        events += translator.end(entry, await self._house.runs.get(about.run.id))
                    else:
                        events += translator.translate(entry)
                shown = [event for event in events if event.seq > since and wanted.matches(event)]
                # A reader of quiet channels needs heartbeats too while other channels are busy.
                if shown or not batch or time.monotonic() - spoke >= HEARTBEAT_SECONDS:
                    spoke = time.monotonic()
                    yield shown
        except NotFoundError:
            return  # the run was deleted while it was read


def _start(runs: list[RunPlace], since: int | None) -> int:
    """Return the sequence number after which a new reader starts.

    Without `since` that is before the first unfinished run, or the last run: clients need the current run
    from its first event, and would mistake an older run's end for the end of this one. A number beyond all
    runs is from before some were deleted, and is ignored.
    """
    if since is not None and since <= run_base(len(runs)):
        return since
    unfinished = (about.place for about in runs if not about.run.status.is_terminal)
    return run_base(next(unfinished, max(0, len(runs) - 1)))


async def first_seq(deerflow: DeerFlow, thread_id: str, user: str, since: int | None) -> int:
    """Return the sequence number after which a new reader starts."""
    return _start(await ThreadRuns(deerflow, thread_id, user).look(), since)


async def oldest_open(deerflow: DeerFlow, thread_id: str, user: str) -> int:
    """Return the index of a thread's oldest unfinished run, or of its next run."""
    runs = await ThreadRuns(deerflow, thread_id, user).look()
    return next((about.place for about in runs if not about.run.status.is_terminal), len(runs))
