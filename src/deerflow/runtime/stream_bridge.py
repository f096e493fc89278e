"""Publishes and streams events: one log per run, read from memory or from the database alike."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from deerflow.domain import END, RunRecord, StreamEvent
from deerflow.runtime.encoder import Known
from deerflow.runtime.run_log import CRASH_GAP, KEPT_BYTES, RunLog
from deerflow.runtime.stored_log import StoredLog
from deerflow.storage import EventLog, LogBatch, RunStore
from deerflow.storage.signals import Signals

_MOST_THREADS = 512
KNOWN_BYTES = 32 * 1024 * 1024
"""The memory limit of the fragments cached for all threads."""

Batches = AsyncGenerator[list[StreamEvent] | None, None]
"""Batches of events; an empty batch is a heartbeat, None is the end."""


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
        known_bytes: int = KNOWN_BYTES,
    ) -> None:
        """Create the bridge of one process.

        Args:
            kept_bytes: How much of a run's log stays in memory once it is stored.
            known_bytes: The memory limit of the fragments cached between runs, for all threads.
        """
        self._events = events
        self._stored = StoredLog(events=events, runs=runs, signals=signals)
        self._flush_seconds = flush_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._kept_bytes = kept_bytes
        self._live: dict[str, RunLog] = {}
        self._known: OrderedDict[str, tuple[Known, int]] = OrderedDict()
        """The cached fragments by thread, with their size in bytes."""
        self._known_bytes = 0
        self._most_known_bytes = known_bytes

    def open(self, run: RunRecord, *, on_lost: Callable[[str], object]) -> RunLog:
        """Open the log of a run that this process is about to execute."""
        log = RunLog(
            run_id=run.id,
            thread_id=run.thread_id,
            attempt=run.attempt,
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
        log.begin(attempt=run.attempt, first_seq=first_seq, known=await self._known_of(run.thread_id))
        self._live[run.id] = log

    async def _known_of(self, thread_id: str) -> Known:
        """Return the thread's fragments: from the cache, unless other processes added or deleted some."""
        known = self._recall(thread_id)
        if known is not None:
            number, digest = await self._events.newest_fragment(thread_id)
            # Compare the content too: numbers restart in a thread whose fragments another process deleted.
            is_same = known.digests.get(digest) == number if digest else not known.digests
            if is_same and number == max(known.digests.values(), default=-1):
                return known
        return Known(await self._events.digests(thread_id))

    def _remember(self, thread_id: str, known: Known) -> None:
        self._recall(thread_id)
        size = known.size
        self._known[thread_id] = known, size
        self._known_bytes += size
        while len(self._known) > _MOST_THREADS or self._known_bytes > self._most_known_bytes:
            self._recall(next(iter(self._known)))

    def _recall(self, thread_id: str) -> Known | None:
        """Remove and return a thread's cached fragments."""
        known, size = self._known.pop(thread_id, (None, 0))
        self._known_bytes -= size
        return known

    async def publish_end(self, log: RunLog, settle: Callable[[LogBatch], Awaitable[object]]) -> None:
        """End a run's log together with the run; from then on it is read from the database."""
        await log.end(settle)
        self._close(log)
        self._remember(log.thread_id, log.known)

    async def abandon(self, log: RunLog) -> None:
        """Close a log whose run another process resumes."""
        self._close(log)
        await log.abandon()

    def _close(self, log: RunLog) -> None:
        if self._live.get(log.run_id) is log:  # else a later attempt writes here by now
            del self._live[log.run_id]

    def forget(self, thread_id: str) -> None:
        """Drop the cached fragments of a deleted thread."""
        self._recall(thread_id)

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
            if log is not None and seq >= log.next_seq:
                seq = -1
            if log is not None and log.holds_from(seq):
                source = self._follow(log, seq, heartbeat)
            else:
                source = self._stored.follow(
                    run_id, seq, heartbeat_seconds=heartbeat, is_live=self._is_live_from
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
        while log.holds_from(seq):  # a reader that fell behind continues from the database
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

    def _is_live_from(self, run_id: str, seq: int) -> bool:
        log = self._live.get(run_id)
        return log is not None and log.holds_from(seq)
