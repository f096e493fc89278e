"""Admits, starts, streams and cancels runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, StreamEvent, new_id
from deerflow.errors import ConflictError, DeerFlowError, InvalidInputError, NotFoundError
from deerflow.runtime.event_log import StreamBridge
from deerflow.runtime.inputs import check_same_input, graph_input, with_message_ids, with_update_ids
from deerflow.runtime.interrupts import answer_by_message, match_answers
from deerflow.runtime.run_control import OwnedRuns
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.threads import Threads, with_title
from deerflow.runtime.webhooks import Webhooks
from deerflow.runtime.worker import RunPreparer, Worker
from deerflow.storage import OwnerLock, Storage

logger = logging.getLogger(__name__)

AfterRun = Callable[[RunRecord], Awaitable[None]]
POLL_SECONDS = 1.0
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
        preparer: RunPreparer,
        states: ThreadStates,
        threads: Threads,
        webhooks: Webhooks,
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
        self._preparer = preparer
        self._states = states
        self._threads = threads
        self._webhooks = webhooks
        self._owner = owner
        self._grace_seconds = grace_seconds
        self._after_run = after_run
        self._owned = OwnedRuns(
            storage=storage,
            bridge=bridge,
            worker=worker,
            owner=owner,
            capacity=capacity,
            max_attempts=max_attempts,
            heartbeat_seconds=min(POLL_SECONDS, lease_seconds / 4),
            on_end=self._ended,
        )
        self._takes_over = False
        self._waiting: dict[str, str] = {}
        """The threads of runs that were admitted here and that only this process will start, by run id."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._follow_ups: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.left_behind = 0
        """How many runs could not be released on shutdown; their leases have to expire."""

    async def start(self, request: RunRequest) -> RunRecord:
        """Admit a run and start it; on a busy thread, the request's multitask strategy decides.

        A repeated request (same idempotency key and input) returns its earlier run.
        """
        if (earlier := await self._sent_before(request)) is not None:
            return earlier  # even if its thread, agent or question has changed since
        request = await self._preparer.resolve(request)
        request = await answer_by_message(self._states, self._storage.threads, request)
        request = await match_answers(self._states, self._storage.runs, request)
        if request.options.subagent_enabled is None:  # an answer has the options of the run that asked
            delegates = self._preparer.settings.subagents.enabled
            request = replace(request, options=replace(request.options, subagent_enabled=delegates))
        await self._check_input(request)
        request = with_title(request, self._preparer.settings.title)
        command = with_update_ids(request.command)
        request = replace(request, input=with_message_ids(request.input), command=command)
        run_id = new_id()
        # Stored before the run: a server that dies right after admitting it must not have lost them.
        if request.webhook is not None:
            await self._webhooks.expect(run_id, request.webhook)
        if request.deletes_thread:
            await self._threads.mark_temporary(run_id, request)
        return await self._admit(run_id, request)

    async def _sent_before(self, request: RunRequest) -> RunRecord | None:
        """Return the run of a repeated request; `ConflictError` when its input differs."""
        if request.idempotency_key is None:
            return None
        run = await self._storage.runs.by_idempotency_key(request)
        if run is not None:
            check_same_input(run.request, request)
        return run

    async def _check_input(self, request: RunRequest) -> None:
        """Reject malformed input, and a run without input on a thread without state."""
        if graph_input(request) is not None or await self._states.latest(request.thread_id) is not None:
            return
        if not await self._threads.is_busy(request.thread_id):  # an active run may leave a state
            raise InvalidInputError(
                f"input is null, and thread {request.thread_id} has no state to go on from: "
                "send input.messages"
            )

    async def _admit(self, run_id: str, request: RunRequest) -> RunRecord:
        with self._owned.reserve_slot() as has_slot:
            # Without a free slot, or during shutdown, other processes start the admitted run.
            owner = self._owner.id if has_slot else None
            run = await self._storage.runs.create(run_id, request, owner=owner)
            if run.id != run_id:
                check_same_input(run.request, request)
                return run  # a repeated request: its run is in progress or has ended
            if run.status is RunStatus.RUNNING:
                self._owned.start(run)
                return run
        try:
            await self._wait_in_queue(run)
        except DeerFlowError:
            logger.exception("run %s was admitted; the next poll for runs starts it", run.id)
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
        return self._owned.in_progress

    def subscribe(
        self, run_id: str, *, after_seq: int = -1, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[list[StreamEvent]]:
        """Stream a run's events after number `after_seq` to its end."""
        return self._bridge.subscribe(run_id, after_seq=after_seq, heartbeat_seconds=heartbeat_seconds)

    async def wait(self, run_id: str) -> RunRecord:
        """Wait for a run to end, in whichever process it runs, and return it."""
        handle = self._owned.get(run_id)
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
        run = await self._request_cancel(run_id, action)
        if wait:
            return await self.wait(run_id)
        return (await self._wait_for_end([run]))[0]

    async def cancel_many(
        self, runs: Sequence[RunRecord], *, action: CancelAction = CancelAction.INTERRUPT
    ) -> int:
        """Cancel all of these that have not ended, as `cancel` does; return how many."""
        requested = []
        for run in runs:
            with suppress(ConflictError):  # it has ended already
                requested.append(await self._request_cancel(run.id, action))
        await self._wait_for_end(requested)
        return len(requested)

    async def _request_cancel(self, run_id: str, action: CancelAction) -> RunRecord:
        before = await self.get(run_id)
        # Stored first: if this process dies now, the run is still cancelled.
        run = before if before.status.is_terminal else await self._storage.runs.request_cancel(run_id, action)
        if run.status.is_terminal and before.status is not RunStatus.PENDING:
            raise ConflictError(f"run {run_id} is not cancellable: it has ended with status {run.status}")
        await self._owned.apply_cancellations()
        return run

    async def _wait_for_end(self, runs: Sequence[RunRecord]) -> list[RunRecord]:
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

    def start_polling(self, *, take_over: bool) -> None:
        """Start the background loops: cancel requests, heartbeats and (for servers) runs of dead owners."""
        self._takes_over = take_over
        if self._owned.capacity == 0:
            return  # nothing runs here, and other processes claim runs without an owner
        self._owned.keep_leases()
        if not take_over:
            self._grace_seconds = 0  # a one-off job must not delay its caller on shutdown
            self.every_second(self._claim_waiting, name="starting runs that wait")
            return
        self.every_second(self._owned.claim_orphans, name="claiming runs without an owner")
        if (jobs := self._storage.jobs) is not None:
            take, concurrency = self._owned.execute_announced, self._owned.capacity or _ANY_NUMBER
            self.every_second(lambda: jobs.follow(take, concurrency=concurrency), name="job queue of runs")

    def every_second(self, work: Callable[[], Awaitable[object]], *, name: str) -> None:
        """Call `work` once a second, until shutdown begins."""
        self._owned.every(POLL_SECONDS, work, name=name)

    async def aclose(self) -> None:
        """Shut down: runs in progress stop at their next step, and another process resumes them.

        A step that takes longer than the grace period is cancelled and repeated there.
        """
        self._is_closing = True
        self._owned.close()
        for timer in self._timers.values():
            timer.cancel()
        await self._owned.stop_polling()
        for task in list(self._follow_ups):
            task.cancel()
        await asyncio.gather(*self._follow_ups, return_exceptions=True)
        if self.in_progress:
            logger.info("%s runs in progress are handed over at their next step", self.in_progress)
        self.left_behind = await self._owned.drain(
            self._grace_seconds, on_grace_over=self._storage.shorten_timeouts
        )
        await self._owned.aclose()

    def skip_grace(self) -> None:
        """Cancel and hand over all runs immediately; for a process that is shutting down."""
        self._grace_seconds = 0
        self._owned.hand_over()

    def _ended(self, run: RunRecord) -> None:
        if not self._is_closing:
            self._in_background(self._follow_up(run))

    async def _follow_up(self, run: RunRecord) -> None:
        if self._owned.capacity is None:
            await self._owned.claim_next(run.thread_id)
        elif self._storage.jobs is None:  # with jobs, the queue brings the oldest; without, poll
            await self._owned.claim_orphans()
        if self._after_run is not None:
            ended = await self.get(run.id)
            if ended.status.is_terminal:
                await self._after_run(ended)

    async def _wait_in_queue(self, run: RunRecord) -> None:
        await self._owned.apply_cancellations()  # stops a run that this one interrupts
        if self._owned.capacity == 0:
            return
        if not self._takes_over:
            self._waiting[run.id] = run.thread_id
        if run.request.after_seconds:
            loop = asyncio.get_running_loop()
            # Not the run record: its input need not stay in memory until then.
            timer = loop.call_later(run.request.after_seconds, self._is_due, run.id, run.thread_id)
            self._timers[run.id] = timer
        await self._owned.claim_next(run.thread_id)  # the run before it may have ended meanwhile

    def _is_due(self, run_id: str, thread_id: str) -> None:
        self._timers.pop(run_id, None)
        self._in_background(self._owned.claim_next(thread_id))

    def _in_background(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except DeerFlowError:
                logger.exception("a run's follow-up failed; the next poll for runs does it")

        task = asyncio.create_task(run())
        self._follow_ups.add(task)
        task.add_done_callback(self._follow_ups.discard)

    async def _claim_waiting(self) -> None:
        """Start runs admitted here when they are next; the run before may have ended in another process."""
        for run_id, thread_id in list(self._waiting.items()):
            if await self._is_waiting(run_id):
                await self._owned.claim_next(thread_id)
            else:
                self._waiting.pop(run_id, None)

    async def _is_waiting(self, run_id: str) -> bool:
        try:
            return (await self.get(run_id)).status is RunStatus.PENDING
        except NotFoundError:  # deleted with its thread
            return False
