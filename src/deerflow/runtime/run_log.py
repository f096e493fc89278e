"""The log of one run while the run is alive in this process.

Readers see an event as soon as it is published; storing waits a moment and takes what has come
together, so that a token costs the database almost nothing. What a crash can lose is that moment:
the next attempt numbers its events behind a gap, so no reader confuses old and new.
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
from deerflow.runtime.serialization import Encoder, to_json
from deerflow.runtime.stored_log import MOST_BYTES_PER_READ
from deerflow.storage.base import EventLog, LogBatch, LogEntry
from deerflow.storage.fragments import render

logger = logging.getLogger(__name__)

CRASH_GAP = 10_000
"""Numbers left free after a crash: more events than one unstored moment can hold."""
PACE_SECONDS = 0.02
"""How soon after some text of a message its readers are told of more: faster than anybody reads, and a
flood of tokens wakes each reader, and writes to its connection, fifty times a second at most."""
_RETRY_SECONDS = 1.0
_MOST_PER_READ = 256


class RunLog:
    """Numbers, keeps and stores the events of one run, and wakes its readers."""

    def __init__(
        self,
        *,
        run_id: str,
        thread_id: str,
        attempt: int,
        events: EventLog,
        flush_seconds: float,
        on_lost: Callable[[str], object],
    ) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self._attempt = attempt
        self._events = events
        self._flush_seconds = flush_seconds
        self._on_lost = on_lost
        self._encoder = Encoder({})
        self._entries: list[LogEntry] = []
        self._first_seq = 0
        self._stored = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._quiet_until = 0.0
        """Until then, more text of a message can wait; on the loop's clock."""
        self._alarm: asyncio.TimerHandle | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._storing = asyncio.Lock()
        self._is_ending = False
        self.is_closed = False

    def begin(self, *, attempt: int, first_seq: int, digests: Mapping[bytes, int]) -> None:
        """Set what only the database knows; nothing may have been published before."""
        self._attempt = attempt
        self._first_seq = first_seq
        self._encoder = Encoder(digests)

    @property
    def digests(self) -> Mapping[bytes, int]:
        return self._encoder.digests

    def publish(self, kind: str, payload: Any) -> None:
        """Append one event and wake the readers."""
        if self._append(kind, self._encoder.encode(payload)):
            self._quiet_until = 0.0
            self._wake()

    def publish_chunk(self, kind: str, message: BaseMessage, metadata: Mapping[str, Any]) -> None:
        """Append a piece of a message with the metadata of the call it belongs to."""
        if self._append(kind, self._encoder.encode_chunk(message, metadata)):
            self._wake_in_pace()

    async def flush(self) -> None:
        """Store everything that was published so far."""
        async with self._storing:  # one batch at a time, so that events are stored in order and once
            await self._store()

    async def end(self, settle: Callable[[LogBatch], Awaitable[object]]) -> None:
        """Store the last events together with what `settle` writes, then show the end to the readers."""
        async with self._storing:
            self._is_ending = True
            last = self._entry(END, to_json(None))
            await settle(self._batch([*self._entries[self._stored :], last]))
            self._entries.append(last)
            self._stored = len(self._entries)
            self.is_closed = True
        self._rest()
        self._wake()

    async def abandon(self) -> None:
        """Stop without an end: somebody else goes on with the run."""
        self.is_closed = True
        with contextlib.suppress(DeerFlowError):  # whoever owns the run by now has the say
            await self.flush()
        self._rest()
        self._wake()

    @property
    def next_seq(self) -> int:
        """The number that the next event will have."""
        return self._first_seq + len(self._entries)

    @property
    def count(self) -> int:
        """How many events were published here."""
        return len(self._entries)

    def after(self, seq: int) -> list[StreamEvent]:
        """Return the next events behind number `seq`, ready for the wire, as many as may be sent at once."""
        start = max(0, seq + 1 - self._first_seq)
        batch: list[StreamEvent] = []
        size = 0
        for entry in self._entries[start : start + _MOST_PER_READ]:
            event = self._rendered(entry)
            batch.append(event)
            size += len(event.data)
            if size >= MOST_BYTES_PER_READ:
                break
        return batch

    def holds_from(self, seq: int) -> bool:
        """Tell whether everything behind number `seq` is in this process's memory."""
        return seq + 1 >= self._first_seq

    async def wait(self, seconds: float) -> None:
        """Return when something was published, or when the time is up."""
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
            return (
                False  # somebody who outlived the run, such as a tool in a thread, speaks into an ended log
            )
        self._entries.append(self._entry(kind, body))
        if self._flusher is None:
            self._flusher = asyncio.get_running_loop().create_task(self._flush_soon())
        return True

    def _entry(self, kind: str, body: bytes) -> LogEntry:
        return LogEntry(self.next_seq, time.time_ns() // 1_000_000, kind, body)

    def _batch(self, entries: Sequence[LogEntry]) -> LogBatch:
        return LogBatch(self.run_id, self.thread_id, self._attempt, entries, self._encoder.fresh)

    def _wake_in_pace(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + PACE_SECONDS
            self._wake()
        elif self._alarm is None:
            self._alarm = loop.call_at(self._quiet_until, self._wake_late)

    def _wake_late(self) -> None:
        self._quiet_until = asyncio.get_running_loop().time() + PACE_SECONDS
        self._wake()

    def _wake(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for waiter in self._waiters:
            _finish(waiter)
        self._waiters.clear()

    def _rendered(self, entry: LogEntry) -> StreamEvent:
        data = render(entry.body, self._encoder.fragments)
        return StreamEvent(entry.seq, entry.unix_ms, entry.kind, data)

    async def _flush_soon(self) -> None:
        delay = self._flush_seconds
        while self._stored < len(self._entries):
            await asyncio.sleep(delay)
            try:
                await self.flush()
                delay = self._flush_seconds
            except StaleAttemptError:
                self._on_lost(self.run_id)
                return
            except (DeerFlowError, OSError) as error:
                logger.warning("log of run %s could not be stored, trying again: %s", self.run_id, error)
                delay = _RETRY_SECONDS
        self._flusher = None

    async def _store(self) -> None:
        entries = self._entries[self._stored :]
        if not entries:
            return
        batch = self._batch(entries)
        self._encoder.fresh = []
        try:
            await self._events.append(batch)
        except BaseException:
            self._encoder.fresh = [*batch.fragments, *self._encoder.fresh]
            raise
        self._stored += len(entries)

    def _rest(self) -> None:
        """Stop waiting for more to store; nothing is being stored when this is called."""
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
