"""One stream of events over all runs of a thread: replayed from the reader's position, then live."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from deerflow.app import DeerFlow
from deerflow.domain import END
from deerflow.errors import NotFoundError
from deerflow.gateway.protocol.events import EventFilter, ProtocolEvent, run_base, run_index
from deerflow.gateway.protocol.translate import RunTranslator
from deerflow.gateway.thread_follower import ThreadFollower, ThreadRun

HEARTBEAT_SECONDS = 5.0

Batches = AsyncGenerator[list[ProtocolEvent], None]


async def follow_thread(deerflow: DeerFlow, thread_id: str, user: str, wanted: EventFilter) -> Batches:
    """Yield the requested events in batches until the reader disconnects; an empty batch is a heartbeat."""
    follower = ThreadFollower(deerflow, thread_id, user)
    runs = await follower.new_runs()
    since = _start(runs, wanted.since)
    runs = [each for each in runs if each.index >= run_index(since)]
    async with aclosing(follower.follow(runs, heartbeat_seconds=HEARTBEAT_SECONDS)) as started:
        async for each in started:
            if each is None:
                yield []
                continue
            async with aclosing(_follow_run(deerflow, each, wanted, since)) as batches:
                async for batch in batches:
                    yield batch


async def _follow_run(deerflow: DeerFlow, followed: ThreadRun, wanted: EventFilter, since: int) -> Batches:
    translator = RunTranslator(followed, channels=wanted.channels)
    run_id = followed.run.id
    sent_at = time.monotonic()
    try:
        async for batch in deerflow.runs.subscribe(run_id, heartbeat_seconds=HEARTBEAT_SECONDS):
            events: list[ProtocolEvent] = []
            for entry in batch:
                if entry.kind == END:
                    events += translator.end(entry, await deerflow.runs.get(run_id))
                else:
                    events += translator.translate(entry)
            shown = [event for event in events if event.seq > since and wanted.matches(event)]
            # A reader of quiet channels needs heartbeats too while other channels are busy.
            if shown or not batch or time.monotonic() - sent_at >= HEARTBEAT_SECONDS:
                sent_at = time.monotonic()
                yield shown
    except NotFoundError:
        return  # the run was deleted while it was read


def _start(runs: Sequence[ThreadRun], since: int | None) -> int:
    """Return the sequence number after which a new reader starts.

    Without `since` that is before the first unfinished run, or the last run: clients need the current run
    from its first event, and would mistake an older run's end for the end of this one. A number beyond all
    runs is from before some were deleted, and is ignored.
    """
    if since is not None and since <= run_base(len(runs)):
        return since
    return run_base(_first_unfinished(runs, default=max(0, len(runs) - 1)))


def _first_unfinished(runs: Sequence[ThreadRun], *, default: int) -> int:
    return next((each.index for each in runs if not each.run.status.is_terminal), default)


async def first_seq(deerflow: DeerFlow, thread_id: str, user: str, since: int | None) -> int:
    """Return the sequence number after which a new reader starts."""
    return _start(await ThreadFollower(deerflow, thread_id, user).new_runs(), since)


async def applied_seq(deerflow: DeerFlow, thread_id: str, user: str) -> int:
    """Return a sequence number below all events of future runs and of runs in flight."""
    runs = await ThreadFollower(deerflow, thread_id, user).new_runs()
    return run_base(_first_unfinished(runs, default=len(runs)))
