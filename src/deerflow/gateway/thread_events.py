"""Streams the events of a thread's runs, one run after the other, from a reader's last event on."""

import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, RunStatus, StreamEvent, number_in, seq_of
from deerflow.gateway.run_responses import batches_of
from deerflow.runtime import is_wanted
from deerflow.storage import thread_topic

_LOOK_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""Poll intervals for new runs; usually a signal announces them first."""
_HEARTBEAT_SECONDS = 15.0
_MOST_LATEST = 100
_MOST_WAITING = 10_000


@dataclass(slots=True)
class Start:
    """The position at which a reader of a thread resumes."""

    done: set[str]
    """Runs to skip; runs are added as they are streamed."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """The last sequence number that the reader has, by run."""
    moment: tuple[int, int] | None = None
    """Time and sequence number of the reader's last event."""
    by_moment: frozenset[str] | None = frozenset()
    """Runs whose events are compared with `moment` only; None means all."""

    def is_new(self, run: RunRecord, event: StreamEvent) -> bool:
        """Return whether the reader has not seen an event."""
        if self.moment is None or (self.by_moment is not None and run.id not in self.by_moment):
            return True
        return (event.unix_ms, event.seq) > self.moment


async def start_of(deerflow: DeerFlow, thread_id: str, last_event_id: str | None) -> Start:
    """Return where a reader with this last event resumes; without one, at the runs in flight."""
    runs = await deerflow.runs.of_thread(thread_id, limit=_MOST_LATEST)
    moment = number_in((last_event_id or "").partition("-")[0], default=-1)
    if moment < 0:
        return Start({run.id for run in runs if run.status.is_terminal})
    last = (moment, seq_of(last_event_id))
    # By the event itself: clocks are set back, and two runs may write within a millisecond. If two runs have
    # the same event id, the older run is taken: a duplicate event does less harm than a missing one.
    for place, run in reversed(list(enumerate(runs))):
        if await _has(deerflow, run, last):
            older = runs[place + 1 :]
            done = {each.id for each in older if not _is_news(each, last)}
            return Start(done, {run.id: last[1]}, last, frozenset(each.id for each in older))
    return Start({run.id for run in runs if not _is_news(run, last)}, {}, last, None)


async def thread_events(
    deerflow: DeerFlow, thread_id: str, start: Start, chosen: Collection[str]
) -> AsyncIterator[list[StreamEvent]]:
    """Yield the events of a thread's runs, one run after the other; empty batches are heartbeats.

    Args:
        chosen: LangGraph's modes for threads: `run_modes` are the modes that each run requested,
            `state_update` its states, `lifecycle` its start and end.
    """
    with deerflow.storage.signals.watch(thread_topic(thread_id)) as arrivals:
        looks, silent = 0, 0.0
        while True:
            runs = await _latest(deerflow, thread_id)
            run = next(
                (run for run in reversed(runs) if run.id not in start.done and not _is_far_off(run)), None
            )
            if run is None:
                began = time.monotonic()
                await arrivals.wait(_LOOK_SECONDS[min(looks, len(_LOOK_SECONDS) - 1)])
                looks, silent = looks + 1, silent + time.monotonic() - began
                if silent >= _HEARTBEAT_SECONDS:
                    silent = 0.0
                    yield []
                continue
            looks, silent = 0, 0.0
            start.done.add(run.id)
            after = start.seen.get(run.id, -1)
            modes = _modes_of(run, chosen)
            async for batch in batches_of(deerflow, run, after_seq=after, modes=modes):
                fresh = [
                    event for event in batch if start.is_new(run, event) and is_wanted(event.kind, modes)
                ]
                if fresh or not batch:
                    yield fresh


async def _has(deerflow: DeerFlow, run: RunRecord, last: tuple[int, int]) -> bool:
    """Return whether an event belongs to this run."""
    found = await deerflow.storage.events.read(run.id, after_seq=last[1] - 1, limit=1)
    return any((entry.unix_ms, entry.seq) == last for entry in found)


async def _latest(deerflow: DeerFlow, thread_id: str) -> list[RunRecord]:
    """Return a thread's latest runs and all that have not ended, newest first."""
    runs = await deerflow.runs.of_thread(thread_id, limit=_MOST_LATEST)
    if len(runs) < _MOST_LATEST or runs[-1].status.is_terminal:
        return runs
    known = {run.id for run in runs}
    for status in (RunStatus.PENDING, RunStatus.RUNNING):
        waiting = await deerflow.runs.of_thread(thread_id, status=status, limit=_MOST_WAITING)
        runs += [run for run in waiting if run.id not in known]
    return runs


def _modes_of(run: RunRecord, chosen: Collection[str]) -> frozenset[str]:
    modes = set(run.request.stream_modes) if "run_modes" in chosen else set()
    if "state_update" in chosen:
        modes |= {"values", "checkpoints"}
    return frozenset(modes)


def _is_far_off(run: RunRecord) -> bool:
    """Return whether a run is delayed (`after_seconds`): other runs may start and end before it."""
    return run.status is RunStatus.PENDING and run.request.after_seconds is not None


def _is_news(run: RunRecord, last: tuple[int, int]) -> bool:
    """Return whether a run may have published events since `last`, by its update time."""
    return not run.status.is_terminal or run.updated_at.timestamp() * 1000 >= last[0]
