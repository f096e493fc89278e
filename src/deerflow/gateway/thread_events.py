"""Streams the events of a thread's runs, one run after the other, from a reader's last event on."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, StreamEvent, number_in, seq_of
from deerflow.gateway.run_responses import batches_of
from deerflow.gateway.thread_follower import ThreadFollower, ThreadRun
from deerflow.runtime import is_wanted

_HEARTBEAT_SECONDS = 15.0
_MOST_SEARCHED = 100
"""How many of the latest runs are searched for the reader's last event."""


@dataclass(slots=True)
class Start:
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


async def start_of(deerflow: DeerFlow, thread_id: str, user: str, last_event_id: str | None) -> Start:
    """Return where a reader with this last event resumes; without one, at the runs in flight."""
    follower = ThreadFollower(deerflow, thread_id, user)
    runs = await follower.new_runs()
    unix_ms = number_in((last_event_id or "").partition("-")[0], default=-1)
    if unix_ms < 0:
        return Start(follower, [each for each in runs if not each.run.status.is_terminal])
    last = (unix_ms, seq_of(last_event_id))
    # By the event itself: clocks are set back, and two runs may write within a millisecond. If two runs have
    # the same event id, the older run is taken: a duplicate event does less harm than a missing one.
    for index, each in list(enumerate(runs))[-_MOST_SEARCHED:]:
        if await _has(deerflow, each.run, last):
            older = [run for run in runs[:index] if _may_have_news(run.run, last)]
            compared = frozenset(run.run.id for run in older)
            return Start(follower, [*older, *runs[index:]], {each.run.id: last[1]}, last, compared)
    return Start(follower, [each for each in runs if _may_have_news(each.run, last)], {}, last, None)


async def thread_events(
    deerflow: DeerFlow, start: Start, chosen: Collection[str]
) -> AsyncIterator[list[StreamEvent]]:
    """Yield the events of a thread's runs, one run after the other; empty batches are heartbeats.

    Args:
        chosen: LangGraph's modes for threads: `run_modes` are the modes that each run requested,
            `state_update` its states, `lifecycle` its start and end.
    """
    followed = start.follower.follow(start.runs, heartbeat_seconds=_HEARTBEAT_SECONDS)
    async with aclosing(followed):
        async for each in followed:
            if each is None:
                yield []
                continue
            run = each.run
            modes = _modes_of(run, chosen)
            async for batch in batches_of(deerflow, run, after_seq=start.seen.get(run.id, -1), modes=modes):
                fresh = [
                    event for event in batch if start.is_new(run, event) and is_wanted(event.kind, modes)
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
