"""Looks after runs in the background: signs of life, wishes to stop, and runs that nobody works on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from deerflow.errors import DeerFlowError
from deerflow.runtime.active import ActiveRuns
from deerflow.runtime.claims import Claims
from deerflow.runtime.handle import Stop
from deerflow.storage.base import Storage
from deerflow.storage.owners import OwnerLock
from deerflow.storage.signals import owner_topic

logger = logging.getLogger(__name__)

_LISTEN_SECONDS = 3600
_LET_GO_SECONDS = 5
_END_SECONDS = 2.0
"""How long a task may take to its end; one that tidies up in a database that is away is told again."""


class LeaseKeeper:
    """Keeps the leases of this process's runs, and takes up those that others left."""

    def __init__(
        self, *, storage: Storage, active: ActiveRuns, claims: Claims, owner: OwnerLock, beat_seconds: float
    ) -> None:
        """Make a tender that does nothing yet.

        Args:
            beat_seconds: The time between two signs of life; a good part of a lease.
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
        """Begin to look after what runs here: signs of life, and wishes to stop."""
        self._keeping = [
            asyncio.create_task(_repeat(self.beat, self._beat_seconds)),
            asyncio.create_task(_repeat(self._listen, self._beat_seconds)),
        ]

    def look(self, look: Callable[[], Awaitable[object]], *, seconds: float) -> None:
        """Begin to look for more to do, again and again."""
        self._looking.append(asyncio.create_task(_repeat(look, seconds)))

    async def rest(self) -> None:
        """Look for nothing new any more; what runs here is still looked after."""
        looking, self._looking = self._looking, []
        await _end(looking)

    async def aclose(self) -> None:
        """Stop altogether, when nothing runs here any more."""
        await self.rest()
        was_keeping = bool(self._keeping)
        await _end(self._keeping)
        self._keeping = []
        if was_keeping:
            await self._let_go()

    async def _let_go(self) -> None:
        """Give back what was claimed a moment ago and never started: others need not wait for its lease."""
        try:
            async with asyncio.timeout(_LET_GO_SECONDS):
                for run_id, attempt in (await self._storage.runs.heartbeat(self._owner.id)).items():
                    await self._storage.runs.release(run_id, attempt=attempt)
        except (DeerFlowError, TimeoutError) as error:
            logger.warning("runs could not be given back, their leases have to run out: %s", error)

    async def beat(self) -> None:
        """Move the leases of this process's runs on, and set right what does not fit."""
        driven = self._active.handles  # taken before asking: a run that starts meanwhile is not missing
        owned = await self._storage.runs.heartbeat(self._owner.id)
        for run_id, handle in driven.items():
            if owned.get(run_id) != handle.attempt:
                handle.tell(Stop.LOST)  # this process was silent for too long, and somebody went on with it
        await self.obey()
        await self._take_up_strays(owned)

    async def obey(self) -> None:
        """Stop the runs of this process that somebody wants stopped."""
        self._active.obey(await self._storage.runs.cancel_requests(self._owner.id))

    async def _listen(self) -> None:
        """Hear of wishes to stop as soon as they are stored, wherever they come from."""
        with self._storage.signals.watch(owner_topic(self._owner.id)) as wishes:
            while True:
                if await wishes.wait(_LISTEN_SECONDS):
                    await self.obey()

    async def _take_up_strays(self, owned: dict[str, int]) -> None:
        """Drive what belongs to this process and is not driven, such as a run whose end could not be stored.

        A run that is being started looks the same for a moment, so only what was there at the last beat too
        is taken up.
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
        except Exception:  # this loop owns whatever goes wrong: it has to go on
            logger.exception("runs could not be looked after, trying again")
        await asyncio.sleep(seconds)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    waiting = set(tasks)
    for _ in range(2):
        for task in waiting:
            task.cancel()
        if waiting:
            waiting = (await asyncio.wait(waiting, timeout=_END_SECONDS))[1]
