"""Where events go and come from: one log per run, read live or from the database alike."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from deerflow.domain import END, RunRecord, StreamEvent
from deerflow.runtime.run_log import CRASH_GAP, RunLog
from deerflow.storage.base import EventLog, LogBatch, LogEntry, RunStore
from deerflow.storage.fragments import references, render

_MOST_THREADS = 512
_POLL_SECONDS = (0.05, 0.1, 0.2, 0.4)


class StreamBridge:
    """Publishes the events of runs and lets any number of readers follow them."""

    def __init__(
        self,
        *,
        events: EventLog,
        runs: RunStore,
        flush_seconds: float = 0.05,
        heartbeat_seconds: float = 15,
    ) -> None:
        self._events = events
        self._runs = runs
        self._flush_seconds = flush_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._live: dict[str, RunLog] = {}
        self._digests: OrderedDict[str, Mapping[bytes, int]] = OrderedDict()

    def open(self, run: RunRecord, *, on_lost: Callable[[str], object]) -> RunLog:
        """Open the log of a run that this process is about to drive."""
        log = RunLog(
            run_id=run.id,
            thread_id=run.thread_id,
            attempt=run.attempt,
            events=self._events,
            flush_seconds=self._flush_seconds,
            on_lost=on_lost,
        )
        if run.attempt == 1:  # a later attempt cannot be followed before its first number is known
            self._live[run.id] = log
        return log

    async def begin(self, log: RunLog, run: RunRecord) -> None:
        """Fetch what the log of a claimed run builds on: its last number, the thread's fragments."""
        first_seq = 0
        if run.attempt > 1:
            last = await self._events.last_seq(run.id)
            first_seq = last + 1 + CRASH_GAP
        digests = self._digests.pop(run.thread_id, None)
        if digests is None or run.attempt > 1:
            digests = await self._events.digests(run.thread_id)
        log.begin(attempt=run.attempt, first_seq=first_seq, digests=digests)
        self._live[run.id] = log

    async def publish_end(self, log: RunLog, settle: Callable[[LogBatch], Awaitable[object]]) -> None:
        """End a run's log together with the run; from here on it is read from the database."""
        await log.end(settle)
        self._live.pop(log.run_id, None)
        self._digests[log.thread_id] = log.digests
        while len(self._digests) > _MOST_THREADS:
            self._digests.popitem(last=False)

    async def abandon(self, log: RunLog) -> None:
        """Close a log whose run somebody else goes on with."""
        self._live.pop(log.run_id, None)
        await log.abandon()

    def forget(self, thread_id: str) -> None:
        """Drop what is remembered of a deleted thread."""
        self._digests.pop(thread_id, None)

    async def subscribe(
        self, run_id: str, *, after_seq: int = -1, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[list[StreamEvent]]:
        """Yield a run's events in batches until its end; an empty batch is a sign of life.

        A number that the run never reached means a reader that knows another log: it gets everything.
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
                source = self._read(run_id, seq, heartbeat)
            async for batch in source:
                if batch is None:
                    is_over = True
                    break
                yield batch
                if batch:
                    seq, is_over = batch[-1].seq, batch[-1].kind == END

    async def _follow(
        self, log: RunLog, seq: int, heartbeat: float
    ) -> AsyncIterator[list[StreamEvent] | None]:
        while True:
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

    async def _read(self, run_id: str, seq: int, heartbeat: float) -> AsyncIterator[list[StreamEvent] | None]:
        """Read the stored log, waiting for more while another process (or a later attempt) writes it.

        Ends with None when there is nothing more to come.
        """
        idle, silent = 0, 0.0
        while True:
            run = await self._runs.get(run_id)
            entries = await self._events.read(run_id, after_seq=seq)
            if entries:
                idle, silent = 0, 0.0
                yield await self._rendered(run.thread_id, entries)
                seq = entries[-1].seq
            elif run.status.is_terminal:
                last = await self._events.last_seq(run_id)
                if seq > last >= 0:
                    seq = -1
                    continue
                yield [_missing_end(run)] if last < 0 else None
                return
            elif self._is_live_from(run_id, seq):
                return
            else:
                pause = _POLL_SECONDS[min(idle, len(_POLL_SECONDS) - 1)]
                await asyncio.sleep(pause)
                idle, silent = idle + 1, silent + pause
                if silent >= heartbeat:
                    silent = 0.0
                    yield []

    def _is_live_from(self, run_id: str, seq: int) -> bool:
        log = self._live.get(run_id)
        return log is not None and log.holds_from(seq)

    async def _rendered(self, thread_id: str, entries: list[LogEntry]) -> list[StreamEvent]:
        needed = {number for entry in entries for number in references(entry.body)}
        fragments = await self._events.fragments(thread_id, sorted(needed)) if needed else {}
        return [
            StreamEvent(entry.seq, entry.unix_ms, entry.kind, render(entry.body, fragments))
            for entry in entries
        ]


def _missing_end(run: RunRecord) -> StreamEvent:
    """Make up the end of a run whose log is gone."""
    return StreamEvent(0, int(run.updated_at.timestamp() * 1000), END, b"null")
