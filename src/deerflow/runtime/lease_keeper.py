"""Background loops for runs: heartbeats, cancel requests, and claiming runs without a live owner."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from deerflow.errors import DeerFlowError
from deerflow.runtime.active import ActiveRuns
from deerflow.runtime.claims import Claims
from deerflow.runtime.handle import Stop
from deerflow.storage import Storage
from deerflow.storage.owners import OwnerLock
from deerflow.storage.signals import owner_topic

logger = logging.getLogger(__name__)

_LISTEN_SECONDS = 3600
_LET_GO_SECONDS = 5
_END_SECONDS = 2.0
"""How long a task may take to end; one blocked by an unreachable database is cancelled again."""


class LeaseKeeper:
    """Renews the leases of this process's runs, and runs the periodic searches for more work."""

    def __init__(
        self, *, storage: Storage, active: ActiveRuns, claims: Claims, owner: OwnerLock, beat_seconds: float
    ) -> None:
        """Create a lease keeper that is not started yet.

        Args:
            beat_seconds: The time between two heartbeats; a fraction of a lease.
        """
        self._storage = storage
        self._active = active
        self._claims = claims
        self._owner = owner
        self._beat_seconds = beat_seconds
        self._strays: dict[str, int] = {}
        self._keeping: list[asyncio.Task[None]] = []
        self._looking: list[asyncio.Task[None]] = []

    def keep(self) -> None:
        """Start the heartbeats and the listener for cancel requests."""
        self._keeping = [
            asyncio.create_task(_repeat(self.beat, self._beat_seconds)),
            asyncio.create_task(_repeat(self._listen, self._beat_seconds)),
        ]

    def look(self, look: Callable[[], Awaitable[object]], *, seconds: float) -> None:
        """Start to call `look` periodically."""
        self._looking.append(asyncio.create_task(_repeat(look, seconds)))

    async def rest(self) -> None:
        """Stop the periodic calls; heartbeats and cancel requests go on."""
        looking, self._looking = self._looking, []
        await _end(looking)

    async def aclose(self) -> None:
        """Stop everything; called when no run is in progress any more."""
        await self.rest()
        was_keeping = bool(self._keeping)
        await _end(self._keeping)
        self._keeping = []
        if was_keeping:
            await self._let_go()

    async def _let_go(self) -> None:
        """Release runs that were claimed but never started, so that others need not wait for their leases."""
        try:
            async with asyncio.timeout(_LET_GO_SECONDS):
                for run_id, attempt in (await self._storage.runs.heartbeat(self._owner.id)).items():
                    await self._storage.runs.release(run_id, attempt=attempt)
        except (DeerFlowError, TimeoutError) as error:
            logger.warning("runs could not be given back, their leases have to run out: %s", error)

    async def beat(self) -> None:
        """Renew the leases of this process's runs, stop lost ones, and restart those not executed."""
        driven = self._active.handles  # read before the heartbeat: a run that starts meanwhile is not missing
        owned = await self._storage.runs.heartbeat(self._owner.id)
        for run_id, handle in driven.items():
            if owned.get(run_id) != handle.attempt:
                handle.tell(Stop.LOST)  # the lease expired, and another process took the run
        await self.obey()
        await self._take_up_strays(owned)

    async def obey(self) -> None:
        """Cancel the runs of this process that have a cancel request."""
        self._active.obey(await self._storage.runs.cancel_requests(self._owner.id))

    async def _listen(self) -> None:
        """Apply cancel requests as soon as they are stored, by whichever process."""
        with self._storage.signals.watch(owner_topic(self._owner.id)) as wishes:
            while True:
                if await wishes.wait(_LISTEN_SECONDS):
                    await self.obey()

    async def _take_up_strays(self, owned: dict[str, int]) -> None:
        """Restart runs that this process owns but does not execute, such as after a failure to store the end.

        A run that is being started looks the same for a moment, so only runs that were in this state at the
        last heartbeat too are restarted.
        """
        before, self._strays = (
            self._strays,
            {run_id: attempt for run_id, attempt in owned.items() if self._active.get(run_id) is None},
        )
        for run_id, attempt in self._strays.items():
            if before.get(run_id) == attempt and await self._claims.take(run_id, attempt) is not None:
                logger.warning("run %s was left behind by its first driver, and goes on", run_id)


async def _repeat(work: Callable[[], Awaitable[object]], seconds: float) -> None:
    while True:
        try:
            await work()
        except Exception:  # this loop handles every failure: it must go on
            logger.exception("runs could not be looked after, trying again")
        await asyncio.sleep(seconds)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    waiting = set(tasks)
    for _ in range(2):
        for task in waiting:
            task.cancel()
        if waiting:
            waiting = (await asyncio.wait(waiting, timeout=_END_SECONDS))[1]
