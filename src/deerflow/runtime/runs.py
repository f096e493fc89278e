"""Admits runs, starts them, follows them, stops them, and takes up those of dead processes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, StreamEvent, new_id
from deerflow.errors import ConflictError, DeerFlowError, StaleAttemptError
from deerflow.runtime.ends import given_up
from deerflow.runtime.handle import STOP_OF, RunHandle, Stop
from deerflow.runtime.inputs import graph_input, with_message_ids
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.worker import Worker
from deerflow.storage.base import Storage
from deerflow.storage.owners import OwnerLock

logger = logging.getLogger(__name__)

AfterRun = Callable[[RunRecord], Awaitable[None]]


class RunManager:
    """The front desk of the runtime: everything that happens to a run starts here."""

    def __init__(
        self,
        *,
        storage: Storage,
        bridge: StreamBridge,
        worker: Worker,
        owner: OwnerLock,
        max_attempts: int = 5,
        grace_seconds: float = 10,
        tend_seconds: float = 1.0,
        after_run: AfterRun | None = None,
    ) -> None:
        """Make the front desk of one process.

        Args:
            max_attempts: How often a run is taken up until it counts as the cause of the crashes.
            grace_seconds: How long a run may take to its next step when this process is to end.
            after_run: Called with each run that came to its end here.
        """
        self._storage = storage
        self._bridge = bridge
        self._worker = worker
        self._owner = owner
        self._max_attempts = max_attempts
        self._grace_seconds = grace_seconds
        self._tend_seconds = tend_seconds
        self._after_run = after_run
        self._handles: dict[str, RunHandle] = {}
        self._waiting: dict[str, str] = {}
        """The threads of runs that were admitted here and have not started."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._tender: asyncio.Task[None] | None = None
        self._is_closing = False

    async def create_or_reject(self, request: RunRequest) -> RunRecord:
        """Admit a run and start it; a busy thread answers as the request's strategy says."""
        request = replace(request, input=with_message_ids(request.input))
        graph_input(request)  # refuses a malformed command before anything is stored
        run_id = new_id()
        # A process that is about to end admits what others will start.
        owner = None if self._is_closing else self._owner.id
        run = await self._storage.runs.create(run_id, request, owner=owner)
        if run.id != run_id:
            return run  # the same request again: it is under way or done
        if run.status is RunStatus.RUNNING:
            self._start(run)
        else:
            await self._wait_in_line(run)
        return run

    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        """Return a run; `NotFoundError` when it is not there or not in that thread."""
        return await self._storage.runs.get(run_id, thread_id)

    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        """Return a thread's runs, newest first."""
        return await self._storage.runs.of_thread(thread_id, status=status, limit=limit, offset=offset)

    async def active(self) -> list[RunRecord]:
        """Return all runs that wait or run, oldest first."""
        return await self._storage.runs.active()

    def subscribe(
        self, run_id: str, *, after_seq: int = -1, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[list[StreamEvent]]:
        """Follow a run from behind event number `after_seq` to its end."""
        return self._bridge.subscribe(run_id, after_seq=after_seq, heartbeat_seconds=heartbeat_seconds)

    async def wait(self, run_id: str) -> RunRecord:
        """Return the run once it has ended, wherever it runs."""
        handle = self._handles.get(run_id)
        if handle is not None and handle.task is not None:
            await asyncio.wait([handle.task])
        run = await self.get(run_id)
        if not run.status.is_terminal:
            async for _ in self.subscribe(run_id):
                pass
            run = await self.get(run_id)
        return run

    async def cancel(
        self, run_id: str, *, action: CancelAction = CancelAction.INTERRUPT, wait: bool = False
    ) -> RunRecord:
        """Stop a run, here or wherever it runs: keep what it did so far, or put the thread back."""
        before = await self.get(run_id)
        # Stored first: a process that dies now leaves a run that will not go on.
        run = before if before.status.is_terminal else await self._storage.runs.request_cancel(run_id, action)
        if run.status.is_terminal and before.status is not RunStatus.PENDING:
            raise ConflictError(f"run {run_id} is not cancellable: it has ended with status {run.status}")
        await self._obey()
        return await self.wait(run_id) if wait else run

    async def cancel_many(
        self, runs: Sequence[RunRecord], *, action: CancelAction = CancelAction.INTERRUPT
    ) -> int:
        """Stop all of these that have not ended; return how many were told to."""
        told = 0
        for run in runs:
            try:
                await self.cancel(run.id, action=action)
            except ConflictError:
                continue  # it ended by itself
            told += 1
        return told

    async def delete(self, run_id: str, thread_id: str) -> None:
        """Delete a run that has ended, with its events."""
        run = await self.get(run_id, thread_id)
        if not run.status.is_terminal:
            raise ConflictError(f"run {run_id} is still {run.status}; cancel it first")
        await self._storage.runs.delete(run_id)

    def tend(self, *, take_over: bool) -> None:
        """Start looking after runs: wishes to stop, heartbeats and (for servers) runs of dead owners."""
        if not take_over:
            self._grace_seconds = 0  # a one-off job that is told to end does not keep its caller waiting
        self._tender = asyncio.create_task(self._tend(take_over))

    async def recover(self) -> list[RunRecord]:
        """Take up every run that nobody works on and whose turn it is; return those that go on here."""
        taken = []
        for run in await self._storage.runs.orphans(self._owner):
            try:
                claimed = await self._storage.runs.claim(run.id, owner=self._owner.id, attempt=run.attempt)
            except StaleAttemptError:
                continue
            if claimed.cancel is None and claimed.attempt - claimed.spared > self._max_attempts:
                await self._give_up(claimed)
                continue
            if claimed.attempt > 1:
                logger.info("run %s goes on here, attempt %s", claimed.id, claimed.attempt)
            self._start(claimed)
            taken.append(claimed)
        return taken

    async def aclose(self) -> None:
        """Let go of everything: runs in progress stop at their next step, and the next process goes on.

        A step that takes longer than the grace is cut off and done again there.
        """
        self._is_closing = True
        for timer in self._timers.values():
            timer.cancel()
        looking = [task for task in (self._tender, *self._errands) if task is not None]
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        tasks = [handle.task for handle in self._handles.values() if handle.task is not None]
        for handle in self._handles.values():
            handle.drain()
        if tasks and self._grace_seconds > 0:
            await asyncio.wait(tasks, timeout=self._grace_seconds)
        self.hurry()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Let go of all runs at once, whatever they are at; for a process that is being closed."""
        self._grace_seconds = 0
        for handle in self._handles.values():
            handle.tell(Stop.HANDOVER)

    def _start(self, run: RunRecord) -> None:
        self._waiting.pop(run.id, None)
        handle = RunHandle(STOP_OF[run.cancel] if run.cancel is not None else None)
        log = self._bridge.open(run, on_lost=lambda _: handle.tell(Stop.LOST))
        self._handles[run.id] = handle
        work = self._worker.execute(run, log, handle)
        handle.task = asyncio.create_task(work, name=f"run {run.id}")
        handle.task.add_done_callback(lambda _: self._finished(run))

    def _finished(self, run: RunRecord) -> None:
        self._handles.pop(run.id, None)
        if not self._is_closing:
            self._errand(self._follow_up(run))

    async def _follow_up(self, run: RunRecord) -> None:
        await self._start_next(run.thread_id)
        if self._after_run is not None:
            ended = await self.get(run.id)
            if ended.status.is_terminal:
                await self._after_run(ended)

    async def _start_next(self, thread_id: str) -> None:
        if self._is_closing:
            return
        run = await self._storage.runs.claim_next(thread_id, owner=self._owner.id)
        if run is not None:
            self._start(run)

    async def _wait_in_line(self, run: RunRecord) -> None:
        self._waiting[run.id] = run.thread_id
        if run.request.after_seconds:
            loop = asyncio.get_running_loop()
            self._timers[run.id] = loop.call_later(run.request.after_seconds, self._is_due, run)
        await self._obey()  # whoever is in the way by now learns it
        await self._start_next(run.thread_id)  # and may have ended in between

    def _is_due(self, run: RunRecord) -> None:
        self._timers.pop(run.id, None)
        self._errand(self._start_next(run.thread_id))

    async def _obey(self) -> None:
        """Stop the runs of this process that somebody wants stopped."""
        for run_id, action in (await self._storage.runs.cancel_requests(self._owner.id)).items():
            handle = self._handles.get(run_id)
            if handle is not None:
                handle.tell(STOP_OF[action])

    def _errand(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except DeerFlowError:
                logger.exception("a run's follow-up failed; the next look at all runs does it")

        task = asyncio.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _give_up(self, run: RunRecord) -> None:
        end = given_up(self._max_attempts)
        log = self._bridge.open(run, on_lost=lambda _: None)
        await self._bridge.begin(log, run)
        log.publish("error", {"message": end.error, "name": end.stop_reason})
        settle = partial(self._storage.runs.settle, run.id, attempt=run.attempt, end=end)
        await self._bridge.publish_end(log, lambda last: settle(last=last))

    async def _tend(self, take_over: bool) -> None:
        while True:
            try:
                await self._storage.runs.heartbeat(self._owner.id)
                await self._obey()
                if take_over:
                    await self.recover()
                else:
                    await self._look_after_own()
            except Exception:
                logger.exception("runs could not be looked after, trying again")
            await asyncio.sleep(self._tend_seconds)

    async def _look_after_own(self) -> None:
        """Start what was admitted here when its turn has come; its predecessor may have run elsewhere."""
        for run_id, thread_id in list(self._waiting.items()):
            if (await self.get(run_id)).status is RunStatus.PENDING:
                await self._start_next(thread_id)
            else:
                self._waiting.pop(run_id, None)
