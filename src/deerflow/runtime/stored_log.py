"""Reads a run's log from the database, waiting for more while another process writes it."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping

from deerflow.domain import END, RunRecord, StreamEvent
from deerflow.errors import StorageError
from deerflow.runtime.serialization import to_json
from deerflow.storage import EventLog, LogEntry, RunStore
from deerflow.storage.fragments import references, render
from deerflow.storage.signals import Signals, run_topic

_POLL_SECONDS = (0.05, 0.1, 0.2, 0.4)
"""The polling intervals without a connection for signals."""
_CALM_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""The polling intervals when signals announce new events."""
MOST_BYTES_PER_READ = 256 * 1024
"""How many bytes of a log are rendered for a reader at once."""
_MOST_ENTRIES = 1000
_SMALL_BYTES = 4096
_MOST_SMALL = 256


class StoredLog:
    """The stored logs of all runs, for readers of runs that other processes execute or that have ended."""

    def __init__(self, *, events: EventLog, runs: RunStore, signals: Signals) -> None:
        self._events = events
        self._runs = runs
        self._signals = signals

    async def follow(
        self,
        run_id: str,
        seq: int,
        *,
        heartbeat_seconds: float,
        is_live: Callable[[str, int], bool],
    ) -> AsyncGenerator[list[StreamEvent] | None, None]:
        """Yield the stored events after number `seq`, and those stored later, until the run ends.

        Yields None last when the run has ended; just returns when `is_live` says that the rest is in memory.
        """
        with self._signals.watch(run_topic(run_id)) as watch:
            thread_id = (await self._runs.get(run_id)).thread_id
            small: dict[int, bytes] = {}
            looks, silent = 0, 0.0
            while True:
                entries = await self._events.read(run_id, after_seq=seq, limit=_MOST_ENTRIES)
                if entries:
                    fragments = await self._fragments(thread_id, entries, small)
                    if fragments is None:
                        await self._check_gone(run_id)
                        continue
                    for batch in _batches(entries, fragments):
                        yield batch
                    seq, looks, silent = entries[-1].seq, 0, 0.0
                    if len(entries) == _MOST_ENTRIES:
                        continue
                if is_live(run_id, seq):
                    return
                # After new events a signal announces more: check for the end only when there were none.
                if not entries and (run := await self._ended(run_id)) is not None:
                    last = await self._events.last_seq(run_id)
                    if seq == last or last < 0:
                        yield None if last >= 0 else made_up_end(run)
                        return
                    if seq > last:
                        seq = -1  # a number that the run never reached: the reader gets everything
                    continue  # else the end was stored since the read above
                began = time.monotonic()
                await watch.wait(min(self._pause(looks), heartbeat_seconds))
                looks, silent = looks + 1, silent + time.monotonic() - began
                if silent >= heartbeat_seconds:
                    silent = 0.0
                    yield []

    async def _check_gone(self, run_id: str) -> None:
        """Return if the log was deleted while it was read, events first; with events left, it is damaged."""
        if await self._events.last_seq(run_id) >= 0:
            raise StorageError(f"events of run {run_id} refer to something that is not stored")

    async def _ended(self, run_id: str) -> RunRecord | None:
        run = await self._runs.get(run_id)
        return run if run.status.is_terminal else None

    def _pause(self, looks: int) -> float:
        pauses = _CALM_SECONDS if self._signals.is_connected else _POLL_SECONDS
        return pauses[min(looks, len(pauses) - 1)]

    async def _fragments(
        self, thread_id: str, entries: list[LogEntry], small: dict[int, bytes]
    ) -> Mapping[int, bytes] | None:
        """Return the fragments of entries, caching small ones, which recur; None when some are deleted."""
        needed = {number for entry in entries for number in references(entry.body)}
        missing = sorted(needed - small.keys())
        fragments = {**small, **(await self._events.fragments(thread_id, missing) if missing else {})}
        if not needed <= fragments.keys():
            return None
        small.update((number, body) for number, body in fragments.items() if len(body) <= _SMALL_BYTES)
        while len(small) > _MOST_SMALL:
            del small[next(iter(small))]
        return fragments


def _batches(entries: Iterable[LogEntry], fragments: Mapping[int, bytes]) -> Iterator[list[StreamEvent]]:
    """Yield rendered entries in batches no larger than a reader's connection should hold.

    Each `values` event repeats the state of a long thread: together they are many times what is stored, and
    a reader that stalls would keep them all in memory.
    """
    batch: list[StreamEvent] = []
    size = 0
    for entry in entries:
        event = StreamEvent(entry.seq, entry.unix_ms, entry.kind, render(entry.body, fragments))
        batch.append(event)
        size += len(event.data)
        if size >= MOST_BYTES_PER_READ:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def made_up_end(run: RunRecord) -> list[StreamEvent]:
    """Return the final events of a run whose log is deleted: its error, if any, and its end."""
    when = int(run.updated_at.timestamp() * 1000)
    events = []
    if run.error is not None:
        told = {"message": run.error, "name": run.stop_reason}
        events.append(StreamEvent(0, when, "error", to_json(told)))
    return [*events, StreamEvent(len(events), when, END, to_json(None))]
