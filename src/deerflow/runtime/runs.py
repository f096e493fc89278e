"""Admits runs, starts them, follows them, stops them, and takes up those of dead processes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

from deerflow.domain import (
    CancelAction,
    MultitaskStrategy,
    RunRecord,
    RunRequest,
    RunStatus,
    StreamEvent,
    ThreadStatus,
    new_id,
)
from deerflow.errors import ConflictError, InvalidInputError, StaleAttemptError
from deerflow.runtime.inputs import graph_input, with_message_ids
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.worker import Stop, Worker
from deerflow.storage.base import RunEnd, Storage
from deerflow.storage.owners import OwnerLock

logger = logging.getLogger(__name__)


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
        tend_seconds: float = 1.0,
    ) -> None:
        """Args: `max_attempts` is how often a run is taken up until it counts as the cause of the crashes."""
        self._storage = storage
        self._bridge = bridge
        self._worker = worker
        self._owner = owner
        self._max_attempts = max_attempts
        self._tend_seconds = tend_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, Stop] = {}
        self._tender: asyncio.Task[None] | None = None

    async def create_or_reject(self, request: RunRequest) -> RunRecord:
        """Admit a run and start it; a busy thread answers as the request's strategy says."""
        request = replace(request, input=with_message_ids(request.input))
        graph_input(request)  # refuses a malformed command before anything is stored
        match request.multitask_strategy:
            case MultitaskStrategy.REJECT:
                pass
            case MultitaskStrategy.INTERRUPT:
                await self._interrupt_all(request.thread_id)
            case strategy:
                raise InvalidInputError(
                    f"multitask_strategy '{strategy}' is not available; use 'reject' or 'interrupt'"
                )
        run = await self._storage.runs.create(new_id(), request, owner=self._owner.id)
        self._start(run)
        return run

    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        """Return a run; `NotFoundError` when it is not there or not in that thread."""
        return await self._storage.runs.get(run_id, thread_id)

    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        """Return a thread's runs, newest first."""
        return await self._storage.runs.of_thread(thread_id, status=status, limit=limit, offset=offset)

    def subscribe(
        self, run_id: str, *, after_seq: int = -1, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[list[StreamEvent]]:
        """Follow a run from behind event number `after_seq` to its end."""
        return self._bridge.subscribe(run_id, after_seq=after_seq, heartbeat_seconds=heartbeat_seconds)

    async def wait(self, run_id: str) -> RunRecord:
        """Return the run once it has ended, wherever it runs."""
        task = self._tasks.get(run_id)
        if task is not None:
            await asyncio.wait([task])
        run = await self.get(run_id)
        if not run.status.is_terminal:
            async for _ in self.subscribe(run_id):
                pass
            run = await self.get(run_id)
        return run

    async def cancel(
        self, run_id: str, *, action: CancelAction = CancelAction.INTERRUPT, wait: bool = False
    ) -> RunRecord:
        """Stop a run, here or wherever it runs; what it did so far is kept."""
        run = await self.get(run_id)
        if run.status.is_terminal:
            raise ConflictError(f"run {run_id} is not cancellable: it has ended with status {run.status}")
        if not self._stop(run_id, Stop.INTERRUPT):
            await self._storage.runs.request_cancel(run_id, action)
        return await self.wait(run_id) if wait else run

    async def delete(self, run_id: str, thread_id: str) -> None:
        """Delete a run that has ended, with its events."""
        run = await self.get(run_id, thread_id)
        if not run.status.is_terminal:
            raise ConflictError(f"run {run_id} is still {run.status}; cancel it first")
        await self._storage.runs.delete(run_id)

    def tend(self, *, take_over: bool) -> None:
        """Start looking after runs: wishes to stop, heartbeats and (for servers) runs of dead owners."""
        self._tender = asyncio.create_task(self._tend(take_over))

    async def recover(self) -> list[RunRecord]:
        """Take up every active run whose owner is dead; return those that go on here."""
        taken = []
        for run in await self._storage.runs.orphans(self._owner):
            try:
                claimed = await self._storage.runs.claim(run.id, owner=self._owner.id, attempt=run.attempt)
            except StaleAttemptError:
                continue
            if claimed.attempt > self._max_attempts:
                await self._give_up(claimed)
            else:
                logger.info("run %s goes on here, attempt %s", claimed.id, claimed.attempt)
                self._start(claimed)
                taken.append(claimed)
        return taken

    async def aclose(self) -> None:
        """Let go of everything: runs in progress stay active, and the next process goes on with them."""
        if self._tender is not None:
            self._tender.cancel()
            await asyncio.gather(self._tender, return_exceptions=True)
        for run_id in list(self._tasks):
            self._stop(run_id, Stop.HANDOVER)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, run: RunRecord) -> None:
        log = self._bridge.open(run, on_lost=lambda run_id: self._stop(run_id, Stop.LOST))
        work = self._worker.execute(run, log, self._reason(run.id))
        task = self._tasks[run.id] = asyncio.create_task(work, name=f"run {run.id}")
        task.add_done_callback(lambda _: self._finished(run.id))

    def _reason(self, run_id: str) -> Callable[[], Stop | None]:
        return lambda: self._stops.get(run_id)

    def _finished(self, run_id: str) -> None:
        self._tasks.pop(run_id, None)
        self._stops.pop(run_id, None)

    def _stop(self, run_id: str, why: Stop) -> bool:
        task = self._tasks.get(run_id)
        if task is None:
            return False
        if run_id not in self._stops:  # one cancel is enough; a second would cut off the settling
            self._stops[run_id] = why
            task.cancel()
        return True

    async def _interrupt_all(self, thread_id: str) -> None:
        for run in await self.of_thread(thread_id):
            if not run.status.is_terminal:
                await self.cancel(run.id, wait=True)

    async def _give_up(self, run: RunRecord) -> None:
        times = f"{self._max_attempts} times (runs.max_attempts)"
        text = f"The run was taken up {times} and each time its process died; not trying again."
        end = RunEnd(
            status=RunStatus.ERROR,
            thread_status=ThreadStatus.ERROR,
            error=text,
            stop_reason="TooManyAttempts",
        )
        log = self._bridge.open(run, on_lost=lambda _: None)
        await self._bridge.begin(log, run)
        log.publish("error", {"message": end.error, "name": end.stop_reason})
        settle = partial(self._storage.runs.settle, run.id, attempt=run.attempt, end=end)
        await self._bridge.publish_end(log, lambda last: settle(last=last))

    async def _tend(self, take_over: bool) -> None:
        while True:
            try:
                await self._storage.runs.heartbeat(self._owner.id)
                for run_id in await self._storage.runs.cancel_requests(self._owner.id):
                    self._stop(run_id, Stop.INTERRUPT)
                if take_over:
                    await self.recover()
            except Exception:
                logger.exception("runs could not be looked after, trying again")
            await asyncio.sleep(self._tend_seconds)
