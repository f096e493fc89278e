"""The runs that this process executes, limited by its capacity."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from deerflow.domain import CancelAction, RunRecord
from deerflow.runtime.handle import STOP_OF, RunHandle, Stop
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.worker import Worker

_LET_GO_SECONDS = 8.0
"""How long cancelled runs may take to release; an unreachable database must not block the shutdown."""


class ActiveRuns:
    """Starts and stops claimed runs, and tracks the free slots."""

    def __init__(
        self,
        *,
        worker: Worker,
        bridge: StreamBridge,
        capacity: int | None,
        on_end: Callable[[RunRecord], None],
    ) -> None:
        """Create the registry of runs executed by this process.

        Args:
            capacity: How many runs may be executed at once; None for any number.
            on_end: Called when this process stops executing a run, for whatever reason.
        """
        self.capacity = capacity
        self._worker = worker
        self._bridge = bridge
        self._on_end = on_end
        self._handles: dict[str, RunHandle] = {}
        self._kept = 0
        self._vacancy = asyncio.Event()
        self._line = asyncio.Lock()
        self._is_closed = False

    @property
    def room(self) -> int | None:
        """How many runs may be started now; None for any number."""
        if self._is_closed:
            return 0
        if self.capacity is None:
            return None
        return max(0, self.capacity - len(self._handles) - self._kept)

    @property
    def handles(self) -> dict[str, RunHandle]:
        """A copy of the runs in progress, by id."""
        return dict(self._handles)

    def get(self, run_id: str) -> RunHandle | None:
        """Return the handle of a run in progress."""
        return self._handles.get(run_id)

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Reserve a slot while a run is being claimed; False when there is none."""
        if self.room == 0:
            yield False
            return
        self._kept += 1
        try:
            yield True
        finally:
            self._kept -= 1
            self._tell_vacancy()

    @asynccontextmanager
    async def next_place(self) -> AsyncIterator[None]:
        """Wait for a slot and reserve it while a run is being claimed; first come, first served."""
        async with self._line:
            while self.room == 0:
                self._vacancy.clear()
                await self._vacancy.wait()
            self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1
            self._tell_vacancy()

    def start(self, run: RunRecord) -> RunHandle:
        """Execute a claimed run."""
        before = self._handles.get(run.id)
        if before is not None:
            before.tell(Stop.LOST)  # another process had taken the run, and this one has reclaimed it
        handle = RunHandle(STOP_OF[run.cancel] if run.cancel is not None else None, attempt=run.attempt)
        log = self._bridge.open(run, on_lost=lambda _: handle.tell(Stop.LOST))
        self._handles[run.id] = handle
        work = self._worker.execute(run, log, handle)
        handle.task = asyncio.create_task(work, name=f"run {run.id}")
        handle.task.add_done_callback(lambda _: self._ended(run, handle))
        return handle

    def obey(self, wishes: dict[str, CancelAction]) -> None:
        """Cancel the runs with a cancel request."""
        for run_id, action in wishes.items():
            handle = self._handles.get(run_id)
            if handle is not None:
                handle.tell(STOP_OF[action])

    def close(self) -> None:
        """Accept no more runs."""
        self._is_closed = True

    async def drain(self, grace_seconds: float, *, hasten: Callable[[], None]) -> int:
        """Stop all runs at their next step; cancel those that take longer than the grace period.

        Args:
            hasten: Called after the grace period: from then on, do not wait for an unreachable database.

        Returns:
            How many runs could not be released.
        """
        driven = list(self._handles.values())
        tasks = {handle.task for handle in driven if handle.task is not None}
        for handle in driven:
            handle.drain()
        if tasks and grace_seconds > 0:
            await asyncio.wait(tasks, timeout=grace_seconds)
        hasten()
        self.hurry()
        late = (await asyncio.wait(tasks, timeout=_LET_GO_SECONDS))[1] if tasks else set()
        return sum(handle.is_left_behind or handle.task in late for handle in driven)

    def hurry(self) -> None:
        """Cancel and hand over all runs immediately, in whatever step they are."""
        for handle in self._handles.values():
            handle.tell(Stop.HANDOVER)

    def _ended(self, run: RunRecord, handle: RunHandle) -> None:
        if self._handles.get(run.id) is handle:
            del self._handles[run.id]
        self._tell_vacancy()
        self._on_end(run)

    def _tell_vacancy(self) -> None:
        if self.room != 0:
            self._vacancy.set()
