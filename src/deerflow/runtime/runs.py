"""Admits, starts, streams and cancels runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, StreamEvent, new_id
from deerflow.errors import ConflictError, DeerFlowError, NotFoundError
from deerflow.runtime.active import ActiveRuns
from deerflow.runtime.claims import Claims
from deerflow.runtime.inputs import check_same_input, graph_input, with_message_ids, with_update_ids
from deerflow.runtime.lease_keeper import LeaseKeeper
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.worker import Worker
from deerflow.storage import Storage
from deerflow.storage.owners import OwnerLock

logger = logging.getLogger(__name__)

AfterRun = Callable[[RunRecord], Awaitable[None]]
LOOK_SECONDS = 1.0
"""The interval between two polls for runs without a live owner."""
STOP_SECONDS = 10.0
"""How long a cancel waits for the run's end; a run that takes longer is returned as `running`."""
_ANY_NUMBER = 1000


class RunManager:
    """The interface to all runs: creates, reads, waits for, cancels and deletes them."""

    def __init__(
        self,
        *,
        storage: Storage,
        bridge: StreamBridge,
        worker: Worker,
        owner: OwnerLock,
        capacity: int | None = None,
        max_attempts: int = 5,
        lease_seconds: float = 30,
        grace_seconds: float = 10,
        after_run: AfterRun | None = None,
    ) -> None:
        """Create the run manager of one process.

        Args:
            capacity: How many runs are executed here at once; None for any number, 0 for none. Runs admitted
                beyond it wait for a process with a free slot.
            max_attempts: How many attempts a run gets until it counts as the cause of the crashes.
            lease_seconds: After this time without a heartbeat, other processes claim this process's runs.
            grace_seconds: How long a run may take to its next step on shutdown.
            after_run: Called with each run that ended in this process.
        """
        self._storage = storage
        self._bridge = bridge
        self._owner = owner
        self._grace_seconds = grace_seconds
        self._after_run = after_run
        self._active = ActiveRuns(worker=worker, bridge=bridge, capacity=capacity, on_end=self._ended)
        self._claims = Claims(
            storage=storage,
            bridge=bridge,
            active=self._active,
            worker=worker,
            owner=owner,
            max_attempts=max_attempts,
        )
        self._tender = LeaseKeeper(
            storage=storage,
            active=self._active,
            claims=self._claims,
            owner=owner,
            beat_seconds=min(LOOK_SECONDS, lease_seconds / 4),
        )
        self._takes_over = False
        self._waiting: dict[str, str] = {}
        """The threads of runs that were admitted here and that only this process will start, by run id."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.left_behind = 0
        """How many runs could not be released on shutdown; their leases have to expire."""

    async def create_or_reject(self, request: RunRequest, *, run_id: str | None = None) -> RunRecord:
        """Admit a run and start it; on a busy thread, the request's multitask strategy decides.

        Args:
            run_id: The id of the run; a new one when absent. A repeated request returns its earlier run,
                which has another id.
        """
        command = with_update_ids(request.command)
        request = replace(request, input=with_message_ids(request.input), command=command)
        graph_input(request)  # rejects a malformed command before anything is stored
        run_id = run_id or new_id()
        with self._active.place() as has_place:
            # Without a free slot, or during shutdown, other processes start the admitted run.
            owner = self._owner.id if has_place else None
            run = await self._storage.runs.create(run_id, request, owner=owner)
            if run.id != run_id:
                check_same_input(run.request, request)
                return run  # a repeated request: its run is in progress or has ended
            if run.status is RunStatus.RUNNING:
                self._active.start(run)
                return run
        try:
            await self._wait_in_line(run)
        except DeerFlowError:
            logger.exception("run %s was admitted; the next look at all runs starts it", run.id)
        return run

    async def sent_before(self, request: RunRequest) -> RunRecord | None:
        """Return the run of a repeated request; `ConflictError` when its input differs."""
        run = (
            await self._storage.runs.by_idempotency_key(request)
            if request.idempotency_key is not None
            else None
        )
        if run is not None:
            check_same_input(run.request, request)
        return run

    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        """Return a run; `NotFoundError` when it does not exist or is not in that thread."""
        return await self._storage.runs.get(run_id, thread_id)

    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        """Return a thread's runs, newest first."""
        return await self._storage.runs.of_thread(thread_id, status=status, limit=limit, offset=offset)

    async def active(self) -> list[RunRecord]:
        """Return all pending and running runs, oldest first."""
        return await self._storage.runs.active()

    @property
    def in_progress(self) -> int:
        """How many runs this process executes now."""
        return len(self._active.handles)

    def subscribe(
        self, run_id: str, *, after_seq: int = -1, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[list[StreamEvent]]:
        """Stream a run's events after number `after_seq` to its end."""
        return self._bridge.subscribe(run_id, after_seq=after_seq, heartbeat_seconds=heartbeat_seconds)

    async def wait(self, run_id: str) -> RunRecord:
        """Wait for a run to end, in whichever process it runs, and return it."""
        handle = self._active.get(run_id)
        if handle is not None:
            await handle.done()
        run = await self.get(run_id)
        if not run.status.is_terminal:
            async for _ in self.subscribe(run_id):
                pass
            run = await self.get(run_id)
        return run

    async def cancel(
        self, run_id: str, *, action: CancelAction = CancelAction.INTERRUPT, wait: bool = False
    ) -> RunRecord:
        """Cancel a run, in whichever process it runs: keep what it did so far, or roll the thread back.

        The run has ended when this returns, unless it takes longer than `STOP_SECONDS`.

        Args:
            wait: Wait for its end without a timeout.
        """
        run = await self._ask_to_stop(run_id, action)
        if wait:
            return await self.wait(run_id)
        return (await self._stopped([run]))[0]

    async def cancel_many(
        self, runs: Sequence[RunRecord], *, action: CancelAction = CancelAction.INTERRUPT
    ) -> int:
        """Cancel all of these that have not ended, as `cancel` does; return how many."""
        asked = []
        for run in runs:
            with suppress(ConflictError):  # it has ended already
                asked.append(await self._ask_to_stop(run.id, action))
        await self._stopped(asked)
        return len(asked)

    async def _ask_to_stop(self, run_id: str, action: CancelAction) -> RunRecord:
        before = await self.get(run_id)
        # Stored first: if this process dies now, the run is still cancelled.
        run = before if before.status.is_terminal else await self._storage.runs.request_cancel(run_id, action)
        if run.status.is_terminal and before.status is not RunStatus.PENDING:
            raise ConflictError(f"run {run_id} is not cancellable: it has ended with status {run.status}")
        await self._tender.obey()
        return run

    async def _stopped(self, runs: Sequence[RunRecord]) -> list[RunRecord]:
        """Return cancelled runs as they are once all have ended, or after `STOP_SECONDS`."""
        waiting = {run.id: asyncio.create_task(self.wait(run.id)) for run in runs}
        try:
            if waiting:
                await asyncio.wait(waiting.values(), timeout=STOP_SECONDS)
        finally:
            for task in waiting.values():
                task.cancel()
            ended = await asyncio.gather(*waiting.values(), return_exceptions=True)
        # A run deleted with its thread, or still running, is returned as it was when it was cancelled.
        return [now if isinstance(now, RunRecord) else run for run, now in zip(runs, ended, strict=True)]

    async def delete(self, run_id: str, thread_id: str) -> None:
        """Delete a run that has ended, with its events."""
        run = await self.get(run_id, thread_id)
        if not run.status.is_terminal:
            raise ConflictError(f"run {run_id} is still {run.status}; cancel it first")
        await self._storage.runs.delete(run_id)

    def tend(self, *, take_over: bool) -> None:
        """Start the background loops: cancel requests, heartbeats and (for servers) runs of dead owners."""
        self._takes_over = take_over
        if self._active.capacity == 0:
            return  # nothing runs here, and other processes claim runs without an owner
        self._tender.keep()
        if not take_over:
            self._grace_seconds = 0  # a one-off job must not delay its caller on shutdown
            self._tender.look(self._look_after_own, seconds=LOOK_SECONDS)
            return
        self._tender.look(self._claims.take_orphans, seconds=LOOK_SECONDS)
        if (jobs := self._storage.jobs) is not None:
            concurrency = self._active.capacity or _ANY_NUMBER
            self._tender.look(
                lambda: jobs.follow(self._claims.serve, concurrency=concurrency), seconds=LOOK_SECONDS
            )

    def look(self, work: Callable[[], Awaitable[object]]) -> None:
        """Call `work` once a second, until shutdown begins."""
        self._tender.look(work, seconds=LOOK_SECONDS)

    async def aclose(self) -> None:
        """Shut down: runs in progress stop at their next step, and another process resumes them.

        A step that takes longer than the grace period is cancelled and repeated there.
        """
        self._is_closing = True
        self._active.close()
        for timer in self._timers.values():
            timer.cancel()
        await self._tender.rest()
        for errand in list(self._errands):
            errand.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)
        if self.in_progress:
            logger.info("%s runs in progress are handed over at their next step", self.in_progress)
        self.left_behind = await self._active.drain(
            self._grace_seconds, hasten=self._storage.shorten_timeouts
        )
        await self._tender.aclose()

    def hurry(self) -> None:
        """Cancel and hand over all runs immediately; for a process that is shutting down."""
        self._grace_seconds = 0
        self._active.hurry()

    def _ended(self, run: RunRecord) -> None:
        if not self._is_closing:
            self._errand(self._follow_up(run))

    async def _follow_up(self, run: RunRecord) -> None:
        if self._active.capacity is None:
            await self._claims.take_next(run.thread_id)
        elif self._storage.jobs is None:  # with jobs, the queue brings the oldest; without, poll
            await self._claims.take_orphans()
        if self._after_run is not None:
            ended = await self.get(run.id)
            if ended.status.is_terminal:
                await self._after_run(ended)

    async def _wait_in_line(self, run: RunRecord) -> None:
        await self._tender.obey()  # stops a run that this one interrupts
        if self._active.capacity == 0:
            return
        if not self._takes_over:
            self._waiting[run.id] = run.thread_id
        if run.request.after_seconds:
            loop = asyncio.get_running_loop()
            # Not the run record: its input need not stay in memory until then.
            timer = loop.call_later(run.request.after_seconds, self._is_due, run.id, run.thread_id)
            self._timers[run.id] = timer
        await self._claims.take_next(run.thread_id)  # the run before it may have ended meanwhile

    def _is_due(self, run_id: str, thread_id: str) -> None:
        self._timers.pop(run_id, None)
        self._errand(self._claims.take_next(thread_id))

    def _errand(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except DeerFlowError:
                logger.exception("a run's follow-up failed; the next look at all runs does it")

        task = asyncio.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _look_after_own(self) -> None:
        """Start runs admitted here when they are next; the run before may have ended in another process."""
        for run_id, thread_id in list(self._waiting.items()):
            if await self._is_waiting(run_id):
                await self._claims.take_next(thread_id)
            else:
                self._waiting.pop(run_id, None)

    async def _is_waiting(self, run_id: str) -> bool:
        try:
            return (await self.get(run_id)).status is RunStatus.PENDING
        except NotFoundError:  # deleted with its thread
            return False
