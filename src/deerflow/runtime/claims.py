"""Claims runs for this process: those next in their thread's queue, and those without a live owner."""

import logging
from functools import partial

from deerflow.domain import CancelAction, RunRecord, RunStatus
from deerflow.errors import NotFoundError, StaleAttemptError
from deerflow.runtime.active import ActiveRuns
from deerflow.runtime.outcomes import given_up
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.worker import Worker
from deerflow.storage import Storage
from deerflow.storage.owners import OwnerLock

logger = logging.getLogger(__name__)


class Claims:
    """Claims runs while there are free slots; a run is claimed by exactly one process."""

    def __init__(
        self,
        *,
        storage: Storage,
        bridge: StreamBridge,
        active: ActiveRuns,
        worker: Worker,
        owner: OwnerLock,
        max_attempts: int,
    ) -> None:
        self._storage = storage
        self._bridge = bridge
        self._active = active
        self._worker = worker
        self._owner = owner
        self._max_attempts = max_attempts

    async def take_next(self, thread_id: str) -> None:
        """Start the next pending run of a thread, if there is one and a slot is free."""
        with self._active.place() as has_place:
            if has_place:
                await self._claim_next(thread_id)

    async def take_orphans(self) -> list[RunRecord]:
        """Claim runs that have no live owner and are next in their thread; return those started here."""
        taken: list[RunRecord] = []
        room = self._active.room
        if room == 0:
            return taken
        limit = None if room is None else room + len(self._active.handles)
        for run in await self._storage.runs.orphans(self._owner, limit=limit):
            if self._active.room == 0:
                break
            if self._drives(run):
                continue  # its lease expired under load; the next heartbeat renews it
            claimed = await self.take(run.id, run.attempt)
            if claimed is not None:
                taken.append(claimed)
        return taken

    async def take(self, run_id: str, attempt: int) -> RunRecord | None:
        """Claim a run that is still at `attempt`; None when another process claimed it or it is given up."""
        with self._active.place() as has_place:
            return await self._claim(run_id, attempt) if has_place else None

    async def serve(self, run_id: str) -> None:
        """Claim an announced run, or the run before it in its thread, and wait for its end.

        The announcement may be stale: a run that has an owner or has ended is left alone.
        """
        taken: RunRecord | None = None
        async with self._active.next_place():
            try:
                run = await self._storage.runs.get(run_id)
            except NotFoundError:
                return
            if run.status is RunStatus.PENDING:
                taken = await self._claim_next(run.thread_id)
            elif run.status is RunStatus.RUNNING and run.owner is None:
                taken = await self._claim(run.id, run.attempt)
        handle = None if taken is None else self._active.get(taken.id)
        if handle is not None:
            await handle.done()

    def _drives(self, run: RunRecord) -> bool:
        handle = self._active.get(run.id)
        return handle is not None and (run.owner, run.attempt) == (self._owner.id, handle.attempt)

    async def _claim_next(self, thread_id: str) -> RunRecord | None:
        run = await self._storage.runs.claim_next(thread_id, owner=self._owner.id)
        if run is not None:
            self._active.start(run)
        return run

    async def _claim(self, run_id: str, attempt: int) -> RunRecord | None:
        try:
            run = await self._storage.runs.claim(run_id, owner=self._owner.id, attempt=attempt)
            # A cancel gets attempts of its own: what the run did may be too much to undo in one attempt.
            most = self._max_attempts if run.cancel is None else 2 * self._max_attempts
            if run.attempt - run.releases > most:
                await self._give_up(run, most)
                return None
        except (StaleAttemptError, NotFoundError):
            return None
        if run.attempt > 1:
            logger.info("run %s goes on here, attempt %s", run.id, run.attempt)
        self._active.start(run)
        return run

    async def _give_up(self, run: RunRecord, attempts: int) -> None:
        end = given_up(attempts, rolls_back=run.cancel is CancelAction.ROLLBACK)
        log = self._bridge.open(run, on_lost=lambda _: None)
        await self._bridge.begin(log, run)
        settle = partial(self._storage.runs.settle, run.id, attempt=run.attempt, end=end)
        try:
            await self._worker.keep_traces(run, log, end)
            log.publish("error", {"message": end.error, "name": end.stop_reason})
            await self._bridge.publish_end(log, lambda last: settle(last=last))
        except BaseException:
            await self._bridge.abandon(log)  # another process ends the run: its readers switch there
            raise
