"""The event log of a run: written once, streamed to any number of readers, from memory or the database.

Readers see an event once it is stored, so nothing that anybody saw is ever taken back, whatever dies.
The first event is stored at once; those that follow closely are stored, and shown, together a moment
later: a burst of tokens costs the database, and each reader, almost nothing. No reader has seen what a
crash loses; the next attempt numbers its events after a gap.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import BaseMessage

from deerflow.domain import END, RunRecord, StreamEvent
from deerflow.errors import DeerFlowError, StaleAttemptError, StorageError
from deerflow.runtime.encoder import Encoder, Known
from deerflow.runtime.serialization import to_json
from deerflow.storage import EventLog, LogBatch, LogEntry, Retention, RunStore
from deerflow.storage.fragments import references, render
from deerflow.storage.signals import Signals, run_topic

logger = logging.getLogger(__name__)

CRASH_GAP = 10_000
"""Sequence numbers skipped after a crash: more than the events that can be unstored."""
KEPT_BYTES = 4 * 1024 * 1024
"""How much of a run's stored log stays in memory; readers further behind read from the database."""
CACHED_BYTES = 32 * 1024 * 1024
"""The memory limit of the fragments cached for all threads."""
_CACHED_THREADS = 512
_RETRY_SECONDS = 1.0
_DROP_BATCH = 50
_DROP_PAUSE_SECONDS = 0.05
"""Between batches: writes of runs take precedence."""
_NEVER = float("-inf")
_DEFERRED_KINDS = frozenset({"metadata", "values", "updates"})
"""Kinds that are stored with the next events: a separate write would delay the first text."""
_OTHER_FLUSH_SHARE = 5
"""The flush interval is divided by this for events other than text."""
_POLL_SECONDS = (0.05, 0.1, 0.2, 0.4)
"""The polling intervals without a connection for signals."""
_SIGNALLED_POLL_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""The polling intervals when signals announce new events."""
_READ_BYTES = 256 * 1024
"""How many bytes of a log are rendered for a reader at once."""
_READ_EVENTS = 256
_READ_ENTRIES = 1000
_SMALL_FRAGMENT_BYTES = 4096
_CACHED_FRAGMENTS = 256

Batches = AsyncGenerator[list[StreamEvent] | None, None]
"""Batches of events; an empty batch is a heartbeat, None is the end."""


class RunLog:
    """Numbers, buffers and stores the events of one run, and wakes its readers."""

    def __init__(
        self,
        run: RunRecord,
        *,
        events: EventLog,
        flush_seconds: float,
        on_lost: Callable[[str], object],
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.run_id = run.id
        self.thread_id = run.thread_id
        self._attempt = run.attempt
        self._events = events
        self._flush_seconds = flush_seconds
        self._on_lost = on_lost
        self._encoder = Encoder(Known({}))
        self._entries: list[LogEntry] = []
        self._first_seq = 0
        """The sequence number of the first entry in memory."""
        self._stored = 0
        """How many of the entries in memory are stored."""
        self._stored_bytes = 0
        self._kept_bytes = kept_bytes
        self._dropped = 0
        self._changed = asyncio.Event()
        self._flushed_at = _NEVER
        self._text_flushed_at = _NEVER
        """Loop time of the last flush of text; reset by any other event."""
        self._ends_in_text = False
        self._due = 0.0
        """When the flusher stores the pending events; only ever moved earlier."""
        self._flusher: asyncio.Task[None] | None = None
        self._due_moved = asyncio.Event()
        self._storing = asyncio.Lock()
        self._is_ending = False
        self.is_closed = False

    def begin(self, *, first_seq: int, known: Known) -> None:
        """Set the values read from the database; nothing may have been published before."""
        self._first_seq = first_seq
        self._encoder = Encoder(known)

    @property
    def known(self) -> Known:
        return self._encoder.known

    def publish(self, kind: str, payload: Any) -> None:
        if self._append(kind, self._encoder.encode(payload)):
            self._ends_in_text = False
            self._text_flushed_at = _NEVER
            if kind in _DEFERRED_KINDS:
                self._store_at(asyncio.get_running_loop().time() + self._flush_seconds)
            else:
                self._store_at(self._flushed_at + self._flush_seconds / _OTHER_FLUSH_SHARE)

    def publish_chunk(self, kind: str, message: BaseMessage, metadata: Mapping[str, Any]) -> None:
        """Append a message chunk with the metadata of its model call."""
        if self._append(kind, self._encoder.encode_chunk(message, metadata)):
            self._ends_in_text = True
            self._store_at(self._text_flushed_at + self._flush_seconds)

    async def flush(self, *, is_urgent: bool = False) -> None:
        """Store all published events."""
        async with self._storing:  # one batch at a time, so that events are stored in order and once
            await self._store(is_urgent)

    async def end(self, settle: Callable[[LogBatch], Awaitable[object]]) -> None:
        """Store the last events in one transaction with what `settle` writes, then show readers the end."""
        async with self._storing:
            self._is_ending = True
            last = self._entry(END, to_json(None))
            try:
                await settle(self._batch([*self._entries[self._stored :], last]))
            except BaseException:
                self._is_ending = False  # it may end in another way, with more events before
                raise
            self._entries.append(last)
            self._stored = len(self._entries)
            self.is_closed = True
        self._stop_flusher()
        self._wake()

    async def abandon(self) -> None:
        """Stop without an end: another process resumes the run."""
        self.is_closed = True
        with suppress(DeerFlowError):  # the current owner decides
            await self.flush()
        self._stop_flusher()
        self._wake()

    @property
    def next_seq(self) -> int:
        """The sequence number after the last stored event."""
        return self._first_seq + self._stored

    @property
    def count(self) -> int:
        """How many events were published by this process."""
        return self._dropped + len(self._entries)

    def after(self, seq: int) -> list[StreamEvent]:
        """Return the next stored events after `seq`, rendered, as many as may be sent at once."""
        start = max(0, seq + 1 - self._first_seq)
        batch: list[StreamEvent] = []
        size = 0
        for entry in self._entries[start : min(start + _READ_EVENTS, self._stored)]:
            event = StreamEvent(entry.seq, entry.unix_ms, entry.kind, self._encoder.render(entry.body))
            batch.append(event)
            size += len(event.data)
            if size >= _READ_BYTES:
                break
        return batch

    def holds_after(self, seq: int) -> bool:
        """Return whether all events after `seq`, an event of this run, are in memory or still to come."""
        return self._first_seq <= seq + 1 <= self.next_seq

    async def wait(self, seconds: float) -> None:
        """Wait for new events, or until the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _append(self, kind: str, body: bytes) -> bool:
        if self._is_ending or self.is_closed:
            return False  # from code that outlived the run, such as a tool in a thread
        self._entries.append(self._entry(kind, body))
        return True

    def _entry(self, kind: str, body: bytes) -> LogEntry:
        seq = self._first_seq + len(self._entries)
        return LogEntry(seq, time.time_ns() // 1_000_000, kind, body)

    def _batch(self, entries: Sequence[LogEntry]) -> LogBatch:
        return LogBatch(self.run_id, self.thread_id, self._attempt, entries, self._encoder.fresh)

    def _store_at(self, due: float) -> None:
        if self._flusher is None:
            self._due = due
            self._flusher = asyncio.get_running_loop().create_task(self._flush_soon())
        elif due < self._due:
            self._due = due
            self._due_moved.set()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _flush_soon(self) -> None:
        loop = asyncio.get_running_loop()
        while self._stored < len(self._entries):
            await self._wait_until_due()
            self._flushed_at = loop.time()
            self._due = self._flushed_at + self._flush_seconds
            is_first_text = self._ends_in_text and self._text_flushed_at == _NEVER
            if self._ends_in_text:
                self._text_flushed_at = self._flushed_at
            try:
                await self.flush(is_urgent=is_first_text)
            except StaleAttemptError:
                self._on_lost(self.run_id)
                return
            except (DeerFlowError, OSError) as error:
                logger.warning("log of run %s could not be stored, trying again: %s", self.run_id, error)
                await asyncio.sleep(_RETRY_SECONDS)
        self._flusher = None

    async def _wait_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (pause := self._due - loop.time()) > 0:
            self._due_moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._due_moved.wait()

    async def _store(self, is_urgent: bool) -> None:
        entries = self._entries[self._stored :]
        if not entries:
            return
        batch = self._batch(entries)
        self._encoder.fresh = []
        try:
            await self._events.append(batch, is_urgent=is_urgent)
        except BaseException:
            self._encoder.fresh = [*batch.fragments, *self._encoder.fresh]
            raise
        self._stored += len(entries)
        self._stored_bytes += sum(len(entry.body) for entry in entries)
        self._wake()
        if self._stored_bytes > 2 * self._kept_bytes:  # rarely: each deletion moves the rest of the list
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        dropped = 0
        while self._stored_bytes > self._kept_bytes and dropped < self._stored:
            self._stored_bytes -= len(self._entries[dropped].body)
            dropped += 1
        del self._entries[:dropped]
        self._first_seq += dropped
        self._stored -= dropped
        self._dropped += dropped

    def _stop_flusher(self) -> None:
        """Cancel the flusher; nothing is being stored when this is called."""
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None


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
            polls, silent = 0, 0.0
            while True:
                entries = await self._events.read(run_id, after_seq=seq, limit=_READ_ENTRIES)
                if entries:
                    fragments = await self._fragments(thread_id, entries, small)
                    if fragments is None:
                        await self._check_gone(run_id)
                        continue
                    for batch in _batches(entries, fragments):
                        yield batch
                    seq, polls, silent = entries[-1].seq, 0, 0.0
                    if len(entries) == _READ_ENTRIES:
                        continue
                if is_live(run_id, seq):
                    return
                # After new events a signal announces more: check for the end only when there were none.
                if not entries and (run := await self._runs.get(run_id)).status.is_terminal:
                    last = await self._events.last_seq(run_id)
                    if seq == last or last < 0:
                        yield None if last >= 0 else substitute_end(run)
                        return
                    if seq > last:
                        seq = -1  # a number that the run never reached: the reader gets everything
                    continue  # else the end was stored since the read above
                began = time.monotonic()
                await watch.wait(min(self._pause(polls), heartbeat_seconds))
                polls, silent = polls + 1, silent + time.monotonic() - began
                if silent >= heartbeat_seconds:
                    silent = 0.0
                    yield []

    async def _check_gone(self, run_id: str) -> None:
        """Return if the log was deleted while it was read, events first; with events left, it is damaged."""
        if await self._events.last_seq(run_id) >= 0:
            raise StorageError(f"events of run {run_id} refer to something that is not stored")

    def _pause(self, polls: int) -> float:
        pauses = _SIGNALLED_POLL_SECONDS if self._signals.is_connected else _POLL_SECONDS
        return pauses[min(polls, len(pauses) - 1)]

    async def _fragments(
        self, thread_id: str, entries: list[LogEntry], small: dict[int, bytes]
    ) -> Mapping[int, bytes] | None:
        """Return the fragments of entries, caching small ones, which recur; None when some are deleted."""
        needed = {number for entry in entries for number in references(entry.body)}
        missing = needed - small.keys()
        fragments = {**small, **await self._events.fragments(thread_id, missing)}
        if not needed <= fragments.keys():
            return None
        small.update(
            (number, body) for number, body in fragments.items() if len(body) <= _SMALL_FRAGMENT_BYTES
        )
        while len(small) > _CACHED_FRAGMENTS:
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
        if size >= _READ_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def substitute_end(run: RunRecord) -> list[StreamEvent]:
    """Return the final events of a run whose log is deleted: its error, if any, and its end."""
    when = int(run.updated_at.timestamp() * 1000)
    events = []
    if run.error is not None:
        error = {"message": run.error, "name": run.stop_reason}
        events.append(StreamEvent(0, when, "error", to_json(error)))
    return [*events, StreamEvent(len(events), when, END, to_json(None))]


class StreamBridge:
    """Publishes the events of runs to any number of readers."""

    def __init__(
        self,
        *,
        events: EventLog,
        runs: RunStore,
        signals: Signals,
        flush_seconds: float = 0.05,
        heartbeat_seconds: float = 15,
        kept_bytes: int = KEPT_BYTES,
        cached_bytes: int = CACHED_BYTES,
    ) -> None:
        """Create the bridge of one process.

        Args:
            kept_bytes: How much of a run's log stays in memory once it is stored.
            cached_bytes: The memory limit of the fragments cached between runs, for all threads.
        """
        self._events = events
        self._stored = StoredLog(events=events, runs=runs, signals=signals)
        self._flush_seconds = flush_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._kept_bytes = kept_bytes
        self._live: dict[str, RunLog] = {}
        self._cached: OrderedDict[str, tuple[Known, int]] = OrderedDict()
        """The cached fragments by thread, with their size in bytes."""
        self._cached_bytes = 0
        self._max_cached_bytes = cached_bytes

    def open(self, run: RunRecord, *, on_lost: Callable[[str], object]) -> RunLog:
        """Open the log of a run that this process is about to execute."""
        log = RunLog(
            run,
            events=self._events,
            flush_seconds=self._flush_seconds,
            on_lost=on_lost,
            kept_bytes=self._kept_bytes,
        )
        if run.attempt == 1:  # a later attempt has no readers before its first number is known
            self._live[run.id] = log
        return log

    async def begin(self, log: RunLog, run: RunRecord) -> None:
        """Load what the log of a claimed run continues from: its last number and the thread's fragments."""
        first_seq = 0
        if run.attempt > 1:
            last = await self._events.last_seq(run.id)
            # Multiplied by the attempt, since several in a row may die before they store anything.
            first_seq = last + 1 + CRASH_GAP * (run.attempt - 1)
        log.begin(first_seq=first_seq, known=await self._known_of(run.thread_id))
        self._live[run.id] = log

    async def _known_of(self, thread_id: str) -> Known:
        """Return the thread's fragments: from the cache, unless other processes added or deleted some."""
        known = self._uncache(thread_id)
        if known is not None:
            number, digest = await self._events.newest_fragment(thread_id)
            # Compare the content too: numbers restart in a thread whose fragments another process deleted.
            is_same = known.digests.get(digest) == number if digest else not known.digests
            if is_same and number == max(known.digests.values(), default=-1):
                return known
        return Known(await self._events.digests(thread_id))

    def _cache(self, thread_id: str, known: Known) -> None:
        self._uncache(thread_id)
        size = known.size
        self._cached[thread_id] = known, size
        self._cached_bytes += size
        while len(self._cached) > _CACHED_THREADS or self._cached_bytes > self._max_cached_bytes:
            self._uncache(next(iter(self._cached)))

    def _uncache(self, thread_id: str) -> Known | None:
        """Remove and return a thread's cached fragments."""
        known, size = self._cached.pop(thread_id, (None, 0))
        self._cached_bytes -= size
        return known

    async def publish_end(self, log: RunLog, settle: Callable[[LogBatch], Awaitable[object]]) -> None:
        """End a run's log together with the run; from then on it is read from the database."""
        await log.end(settle)
        self._close(log)
        self._cache(log.thread_id, log.known)

    async def abandon(self, log: RunLog) -> None:
        """Close a log whose run another process resumes."""
        self._close(log)
        await log.abandon()

    def _close(self, log: RunLog) -> None:
        if self._live.get(log.run_id) is log:  # else a later attempt writes here by now
            del self._live[log.run_id]

    def forget(self, thread_id: str) -> None:
        """Drop the cached fragments of a deleted thread."""
        self._uncache(thread_id)

    async def subscribe(
        self, run_id: str, *, after_seq: int = -1, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[list[StreamEvent]]:
        """Yield a run's events in batches until its end; an empty batch is a heartbeat.

        An `after_seq` that the run never reached belongs to another log: the reader gets everything.
        """
        heartbeat = heartbeat_seconds or self._heartbeat_seconds
        seq, is_over = after_seq, False
        while not is_over:
            log = self._live.get(run_id)
            # The database may be ahead of this log: a batch was stored and its answer is on the way, or
            # another process took the run over.
            if log is not None and seq >= log.next_seq and seq > await self._events.last_seq(run_id):
                seq = -1
            if log is not None and log.holds_after(seq):
                source = self._follow(log, seq, heartbeat)
            else:
                source = self._stored.follow(
                    run_id, seq, heartbeat_seconds=heartbeat, is_live=self._is_live_after
                )
            async with aclosing(source):
                async for batch in source:
                    if batch is None:
                        is_over = True
                        break
                    yield batch
                    if batch:
                        seq, is_over = batch[-1].seq, batch[-1].kind == END

    async def _follow(self, log: RunLog, seq: int, heartbeat: float) -> Batches:
        while log.holds_after(seq):  # a reader that fell behind continues from the database
            batch = log.after(seq)
            if batch:
                yield batch
                seq = batch[-1].seq
            elif log.is_closed:
                return
            else:
                await log.wait(heartbeat)
                if seq + 1 >= log.next_seq and not log.is_closed:
                    yield []

    def _is_live_after(self, run_id: str, seq: int) -> bool:
        log = self._live.get(run_id)
        return log is not None and log.holds_after(seq)


async def drop_expired_events(
    retention: Retention, days: float | None, *, now: datetime | None = None
) -> int:
    """Delete the events of runs that ended more than `days` ago (None: of no run); return how many runs."""
    if days is None:
        return 0
    before = (now or datetime.now(UTC)) - timedelta(days=days)
    total = 0
    while dropped := await retention.drop_events(ended_before=before, limit=_DROP_BATCH):
        total += dropped
        await asyncio.sleep(_DROP_PAUSE_SECONDS)
    if total:
        logger.info("events of %s runs were deleted: they ended more than %g days ago", total, days)
    return total
