"""Claims, starts and stops the runs of this process, and keeps the leases on them.

A run has one owner: the process that executes it. The owner renews its lease with heartbeats; a run whose
owner is gone, or whose lease has expired, is claimed by another process.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta

from langgraph.store.base import BaseStore

from deerflow.domain import RunRecord, RunStatus
from deerflow.errors import DeerFlowError, NotFoundError, StaleAttemptError
from deerflow.periodic import Periodic
from deerflow.runtime.event_log import StreamBridge
from deerflow.runtime.worker import STOP_OF, RunHandle, StopReason, Worker
from deerflow.storage import OwnerLock, Storage, owner_topic

logger = logging.getLogger(__name__)

_CANCELLED_SECONDS = 8.0
"""How long cancelled runs may take to release; an unreachable database must not block the shutdown."""
_RELEASE_SECONDS = 5.0
_LISTEN_SECONDS = 3600


class OwnedRuns:
    """The runs that this process owns: claims, executes and stops them, and keeps their leases."""

    def __init__(
        self,
        *,
        storage: Storage,
        bridge: StreamBridge,
        worker: Worker,
        owner: OwnerLock,
        capacity: int | None,
        max_attempts: int,
        heartbeat_seconds: float,
        on_end: Callable[[RunRecord], None],
    ) -> None:
        """Create the control of one process's runs.

        Args:
            capacity: How many runs may be executed at once; None for any number.
            max_attempts: How many attempts a run gets until it counts as the cause of the crashes.
            heartbeat_seconds: The time between two heartbeats, a fraction of a lease.
            on_end: Called when this process stops executing a run, for whatever reason.
        """
        self.capacity = capacity
        self._runs = storage.runs
        self._signals = storage.signals
        self._bridge = bridge
        self._worker = worker
        self._owner = owner
        self._max_attempts = max_attempts
        self._heartbeat_seconds = heartbeat_seconds
        self._on_end = on_end
        self._handles: dict[str, RunHandle] = {}
        self._reserved = 0
        self._slot_freed = asyncio.Event()
        self._queue = asyncio.Lock()
        self._is_closed = False
        self._idle: dict[str, int] = {}
        self._leases: list[Periodic] = []
        self._polls: list[Periodic] = []

    @property
    def in_progress(self) -> int:
        return len(self._handles)

    def get(self, run_id: str) -> RunHandle | None:
        return self._handles.get(run_id)

    @property
    def free_slots(self) -> int | None:
        """How many runs may be started now; None for any number."""
        if self._is_closed:
            return 0
        if self.capacity is None:
            return None
        return max(0, self.capacity - len(self._handles) - self._reserved)

    @contextmanager
    def reserve_slot(self) -> Iterator[bool]:
        """Reserve a slot while a run is being claimed; False when there is none."""
        if self.free_slots == 0:
            yield False
            return
        self._reserved += 1
        try:
            yield True
        finally:
            self._reserved -= 1
            self._announce_slot()

    @asynccontextmanager
    async def _wait_for_slot(self) -> AsyncIterator[None]:
        """Wait for a slot and reserve it while a run is being claimed; first come, first served."""
        async with self._queue:
            while self.free_slots == 0:
                self._slot_freed.clear()
                await self._slot_freed.wait()
            self._reserved += 1
        try:
            yield
        finally:
            self._reserved -= 1
            self._announce_slot()

    def _announce_slot(self) -> None:
        if self.free_slots != 0:
            self._slot_freed.set()

    def start(self, run: RunRecord) -> None:
        """Execute a claimed run."""
        before = self._handles.get(run.id)
        if before is not None:
            before.stop(StopReason.LOST)  # another process had taken the run, and this one has reclaimed it
        handle = RunHandle(STOP_OF[run.cancel] if run.cancel is not None else None, attempt=run.attempt)
        log = self._bridge.open(run, on_lost=lambda _: handle.stop(StopReason.LOST))
        self._handles[run.id] = handle
        work = self._worker.execute(run, log, handle)
        handle.task = asyncio.create_task(work, name=f"run {run.id}")
        handle.task.add_done_callback(lambda _: self._ended(run, handle))

    def _ended(self, run: RunRecord, handle: RunHandle) -> None:
        if self._handles.get(run.id) is handle:
            del self._handles[run.id]
        self._announce_slot()
        self._on_end(run)

    async def claim_next(self, thread_id: str) -> None:
        """Start the next pending run of a thread, if there is one and a slot is free."""
        with self.reserve_slot() as has_slot:
            if has_slot:
                await self._claim_next(thread_id)

    async def claim_orphans(self) -> list[RunRecord]:
        """Claim runs that have no live owner and are next in their thread; return those started here."""
        claimed: list[RunRecord] = []
        slots = self.free_slots
        if slots == 0:
            return claimed
        limit = None if slots is None else slots + self.in_progress
        for run in await self._runs.orphans(self._owner, limit=limit):
            if self.free_slots == 0:
                break
            handle = self.get(run.id)
            if handle is not None and (run.owner, run.attempt) == (self._owner.id, handle.attempt):
                continue  # its lease expired under load; the next heartbeat renews it
            started = await self._claim_if_free(run.id, run.attempt)
            if started is not None:
                claimed.append(started)
        return claimed

    async def execute_announced(self, run_id: str) -> None:
        """Claim an announced run, or the run before it in its thread, and wait for its end.

        The announcement may be stale: a run that has an owner or has ended is left alone.
        """
        claimed: RunRecord | None = None
        async with self._wait_for_slot():
            try:
                run = await self._runs.get(run_id)
            except NotFoundError:
                return
            if run.status is RunStatus.PENDING:
                claimed = await self._claim_next(run.thread_id)
            elif run.status is RunStatus.RUNNING and run.owner is None:
                claimed = await self._claim(run.id, run.attempt)
        handle = None if claimed is None else self.get(claimed.id)
        if handle is not None:
            await handle.done()

    async def _claim_next(self, thread_id: str) -> RunRecord | None:
        run = await self._runs.claim_next(thread_id, owner=self._owner.id)
        if run is not None:
            self.start(run)
        return run

    async def _claim_if_free(self, run_id: str, attempt: int) -> RunRecord | None:
        with self.reserve_slot() as has_slot:
            return await self._claim(run_id, attempt) if has_slot else None

    async def _claim(self, run_id: str, attempt: int) -> RunRecord | None:
        """Claim a run that is still at `attempt`; None when another process claimed it or it is given up."""
        try:
            run = await self._runs.claim(run_id, owner=self._owner.id, attempt=attempt)
            # A cancel gets attempts of its own: what the run did may be too much to undo in one attempt.
            limit = self._max_attempts if run.cancel is None else 2 * self._max_attempts
            if run.attempt - run.releases > limit:
                await self._worker.give_up(run, limit)
                return None
        except (StaleAttemptError, NotFoundError):
            return None
        if run.attempt > 1:
            logger.info("run %s is resumed, attempt %s", run.id, run.attempt)
        self.start(run)
        return run

    def keep_leases(self) -> None:
        """Start the heartbeats and the listener for cancel requests."""
        seconds = self._heartbeat_seconds
        self._leases = [
            Periodic(self._heartbeat, seconds, name="heartbeat of runs").start(),
            Periodic(self._listen, seconds, name="listening for cancel requests").start(),
        ]

    async def _heartbeat(self) -> None:
        """Renew the leases of this process's runs, stop lost ones, and restart those not executed."""
        handles = dict(self._handles)  # read first: a run that starts meanwhile is not missing
        owned = await self._runs.heartbeat(self._owner.id)
        for run_id, handle in handles.items():
            if owned.get(run_id) != handle.attempt:
                handle.stop(StopReason.LOST)  # the lease expired, and another process took the run
        await self.apply_cancellations()
        await self._restart_idle(owned)

    async def apply_cancellations(self) -> None:
        """Cancel the runs of this process that have a cancel request."""
        for run_id, action in (await self._runs.cancel_requests(self._owner.id)).items():
            handle = self._handles.get(run_id)
            if handle is not None:
                handle.stop(STOP_OF[action])

    async def _listen(self) -> None:
        """Apply cancel requests as soon as they are stored, by whichever process."""
        with self._signals.watch(owner_topic(self._owner.id)) as requests:
            while True:
                if await requests.wait(_LISTEN_SECONDS):
                    await self.apply_cancellations()

    async def _restart_idle(self, owned: Mapping[str, int]) -> None:
        """Restart runs that this process owns but does not execute, such as after a failure to store the end.

        A run that is being started looks the same for a moment, so only runs that were in this state at the
        last heartbeat too are restarted.
        """
        before, self._idle = (
            self._idle,
            {run_id: attempt for run_id, attempt in owned.items() if run_id not in self._handles},
        )
        for run_id, attempt in self._idle.items():
            if before.get(run_id) == attempt and await self._claim_if_free(run_id, attempt) is not None:
                logger.warning("run %s was owned here but not executed, and is restarted", run_id)

    def every(self, seconds: float, work: Callable[[], Awaitable[object]], *, name: str) -> None:
        """Start to call `work` periodically, until `stop_polling`."""
        self._polls.append(Periodic(work, seconds, name=name).start())

    def close(self) -> None:
        self._is_closed = True

    async def stop_polling(self) -> None:
        """Stop the periodic calls; heartbeats and cancel requests go on."""
        polls, self._polls = self._polls, []
        await asyncio.gather(*(each.aclose() for each in polls))

    async def drain(self, grace_seconds: float, *, on_grace_over: Callable[[], None]) -> int:
        """Stop all runs at their next step; cancel those that take longer than the grace period.

        Args:
            on_grace_over: Called after it: from then on, do not wait for an unreachable database.

        Returns:
            How many runs could not be released.
        """
        handles = list(self._handles.values())
        tasks = {handle.task for handle in handles if handle.task is not None}
        for handle in handles:
            handle.drain()
        if tasks and grace_seconds > 0:
            await asyncio.wait(tasks, timeout=grace_seconds)
        on_grace_over()
        self.hand_over()
        late = (await asyncio.wait(tasks, timeout=_CANCELLED_SECONDS))[1] if tasks else set()
        return sum(handle.is_left_behind or handle.task in late for handle in handles)

    def hand_over(self) -> None:
        """Cancel all runs immediately, in whatever step they are; another process resumes them."""
        for handle in self._handles.values():
            handle.stop(StopReason.HANDOVER)

    async def aclose(self) -> None:
        """Stop the heartbeats; called when no run is in progress any more."""
        leases, self._leases = self._leases, []
        await asyncio.gather(*(each.aclose() for each in leases))
        if not leases:
            return
        # Runs that were claimed but never started: others need not wait for their leases.
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                for run_id, attempt in (await self._runs.heartbeat(self._owner.id)).items():
                    await self._runs.release(run_id, attempt=attempt)
        except (DeerFlowError, TimeoutError) as error:
            logger.warning("runs could not be released, their leases have to expire: %s", error)


_NAMESPACE = ("deerflow", "task-cancel-requests")
_MAX = 100


class TaskCancelRequests:
    """Stores cancel requests for other processes, and applies those for this one."""

    def __init__(
        self,
        *,
        store: BaseStore,
        cancel: Callable[[str, str], bool],
        is_busy: Callable[[], bool],
        life: timedelta = timedelta(minutes=10),
    ) -> None:
        """Create the cancel requests of one process.

        Args:
            cancel: Cancels a task of this process by its run and id; False when there is none.
            is_busy: Returns whether this process executes any run.
            life: A request not applied for this long is deleted: its run has ended.
        """
        self._store = store
        self._cancel = cancel
        self._is_busy = is_busy
        self._life = life

    async def request(self, run_id: str, task_id: str) -> None:
        """Store a request to cancel a task, in whichever process it runs."""
        wanted = {"run_id": run_id, "task_id": task_id}
        await self._store.aput(_NAMESPACE, f"{run_id}/{task_id}", wanted, index=False)

    async def apply(self) -> None:
        """Cancel the tasks of this process that have a request."""
        if not self._is_busy():
            return
        for item in await self._store.asearch(_NAMESPACE, limit=_MAX):
            is_old = datetime.now(UTC) - item.created_at > self._life
            if self._cancel(item.value["run_id"], item.value["task_id"]) or is_old:
                await self._store.adelete(_NAMESPACE, item.key)
