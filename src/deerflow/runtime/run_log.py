"""The event log of one run while this process executes it.

Readers see an event once it is stored, so nothing that anybody saw is ever taken back, whatever dies.
The first event is stored at once; those that follow closely are stored, and shown, together a moment
later: a burst of tokens costs the database, and each reader, almost nothing. No reader has seen what a
crash loses; the next attempt numbers its events after a gap.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from deerflow.domain import END, StreamEvent
from deerflow.errors import DeerFlowError, StaleAttemptError
from deerflow.runtime.encoder import Encoder, Known
from deerflow.runtime.serialization import to_json
from deerflow.runtime.stored_log import MOST_BYTES_PER_READ
from deerflow.storage import EventLog, LogBatch, LogEntry

logger = logging.getLogger(__name__)

CRASH_GAP = 10_000
"""Sequence numbers skipped after a crash: more than the events that can be unstored."""
_RETRY_SECONDS = 1.0
_SHARE = 5
"""The flush interval is divided by this for events other than text."""
_CAN_WAIT = frozenset({"metadata", "values", "updates"})
"""Kinds that are stored with the next events: a separate write would delay the first text."""
_LONG_AGO = float("-inf")
_MOST_PER_READ = 256
KEPT_BYTES = 4 * 1024 * 1024
"""How much of the stored log stays in memory; readers further behind read from the database."""


class RunLog:
    """Numbers, buffers and stores the events of one run, and wakes its readers."""

    def __init__(
        self,
        *,
        run_id: str,
        thread_id: str,
        attempt: int,
        events: EventLog,
        flush_seconds: float,
        on_lost: Callable[[str], object],
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self._attempt = attempt
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
        self._waiters: set[asyncio.Future[None]] = set()
        self._flushed_at = _LONG_AGO
        self._text_flushed_at = _LONG_AGO
        """Loop time of the last flush of text; reset by any other event."""
        self._ends_in_text = False
        self._due = 0.0
        """When the flusher stores the pending events; only ever moved earlier."""
        self._flusher: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._storing = asyncio.Lock()
        self._is_ending = False
        self.is_closed = False

    def begin(self, *, attempt: int, first_seq: int, known: Known) -> None:
        """Set the values read from the database; nothing may have been published before."""
        self._attempt = attempt
        self._first_seq = first_seq
        self._encoder = Encoder(known)

    @property
    def known(self) -> Known:
        """The fragments with which the thread's next run may begin."""
        return self._encoder.known

    def publish(self, kind: str, payload: Any) -> None:
        """Append one event."""
        if self._append(kind, self._encoder.encode(payload)):
            self._ends_in_text = False
            self._text_flushed_at = _LONG_AGO
            if kind in _CAN_WAIT:
                self._store_at(asyncio.get_running_loop().time() + self._flush_seconds)
            else:
                self._store_at(self._flushed_at + self._flush_seconds / _SHARE)

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
        self._rest()
        self._wake()

    async def abandon(self) -> None:
        """Stop without an end: another process resumes the run."""
        self.is_closed = True
        with contextlib.suppress(DeerFlowError):  # the current owner decides
            await self.flush()
        self._rest()
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
        for entry in self._entries[start : min(start + _MOST_PER_READ, self._stored)]:
            event = self._rendered(entry)
            batch.append(event)
            size += len(event.data)
            if size >= MOST_BYTES_PER_READ:
                break
        return batch

    def holds_from(self, seq: int) -> bool:
        """Return whether all events after `seq` are in memory."""
        return seq + 1 >= self._first_seq

    async def wait(self, seconds: float) -> None:
        """Wait for new events, or until the timeout."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _finish, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

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
            self._hurry.set()

    def _wake(self) -> None:
        for waiter in self._waiters:
            _finish(waiter)
        self._waiters.clear()

    def _rendered(self, entry: LogEntry) -> StreamEvent:
        return StreamEvent(entry.seq, entry.unix_ms, entry.kind, self._encoder.render(entry.body))

    async def _flush_soon(self) -> None:
        loop = asyncio.get_running_loop()
        while self._stored < len(self._entries):
            await self._wait_until_due()
            self._flushed_at = loop.time()
            self._due = self._flushed_at + self._flush_seconds
            is_first_text = self._ends_in_text and self._text_flushed_at == _LONG_AGO
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
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()

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

    def _rest(self) -> None:
        """Cancel the flusher; nothing is being stored when this is called."""
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
