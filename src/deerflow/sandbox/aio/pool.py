"""Pool of the containers of one process: in use, warm (idle), or starting."""

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp

from deerflow.config import SandboxSettings
from deerflow.errors import DeerFlowError, SandboxUnavailableError
from deerflow.sandbox.aio.api import AioApi, ContainerGoneError, open_http, wait_until_ready
from deerflow.sandbox.aio.backend import ContainerBackend, ContainerWish
from deerflow.sandbox.aio.claims import Claims
from deerflow.sandbox.aio.shell import AioShell
from deerflow.sandbox.locks import FileLocks

logger = logging.getLogger(__name__)

READY_SECONDS = 120.0
"""Maximum time from a container's start to its first response."""
FOUND_SECONDS = 20.0
"""Maximum time until a container that already runs responds."""
HEALTH_SKIP_SECONDS = 5.0


@dataclass(slots=True)
class Slot:
    """A container in the pool."""

    id: str
    api: AioApi
    shell: AioShell
    users: int = 0
    """Number of current users; 0 means warm."""
    claim: int | None = None
    last_use: int = 0
    """Sequence number of the last use: the smallest is evicted first."""
    checked_at: float = 0.0
    retiring: asyncio.Task[None] | None = None


class Pool:
    """Returns a thread's container: from the pool, else discovered as running, else started."""

    def __init__(self, backend: ContainerBackend, claims: Claims, settings: SandboxSettings) -> None:
        self._backend = backend
        self._claims = claims
        self._settings = settings
        self._slots: dict[str, Slot] = {}
        self._locks = FileLocks()
        self._starting = 0
        """Number of containers that are starting; they count as taken."""
        self._freed = asyncio.Condition()
        self._uses = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[str] = set()
        """Ids of containers for which `_end_when_idle` is running."""
        self._http: aiohttp.ClientSession | None = None
        self._has_adopted = False

    async def take(self, wish: ContainerWish) -> Slot:
        """Acquire the thread's container; release it with `give_back`."""
        async with self._locks.hold(wish.id):
            slot = self._slots.get(wish.id)
            if slot is not None:
                try:
                    if self._occupied(slot) and await self._is_well(slot):
                        return slot
                except asyncio.CancelledError:
                    self.give_back(slot)  # the cancelled caller cannot release it
                    raise
                await self.drop(slot)
            return await self._fresh(wish)

    def give_back(self, slot: Slot) -> None:
        """Release the container; without users it stays warm until the idle timeout."""
        slot.users = max(0, slot.users - 1)
        if slot.users:
            return
        if slot.claim is not None:
            self._claims.end_use(slot.claim)
            slot.claim = None
        if self._slots.get(slot.id) is slot:
            self._retire_later(slot)
            self._spawn(self._tell_waiters())

    async def drop(self, slot: Slot) -> None:
        """Remove an unresponsive container from the pool; stop it unless it responds again."""
        self._forget(slot)
        self.give_back(slot)
        if not await slot.api.is_ready():
            await self._destroy_unused(slot.id, idle_seconds=0.0)
        await self._tell_waiters()

    async def discard(self, container_id: str) -> None:
        """Stop a container left by an earlier thread with the same id, unless it is in use."""
        async with self._locks.hold(container_id):
            slot = self._slots.get(container_id)
            if slot is None or not slot.users:
                if slot is not None:
                    self._forget(slot)
                await self._destroy_unused(container_id, idle_seconds=0.0)

    async def aclose(self) -> None:
        """Stop every container of this process that no other process uses."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        slots = list(self._slots.values())
        self._slots.clear()
        for slot in slots:
            if slot.claim is not None:
                self._claims.end_use(slot.claim)
                slot.claim = None
        await asyncio.gather(*(self._destroy_unused(slot.id, idle_seconds=0.0) for slot in slots))
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _fresh(self, wish: ContainerWish) -> Slot:
        await self._adopt()
        await self._reserve()
        try:
            api, claim = await self._started(wish)
        except BaseException:
            self._spawn(self._tell_waiters())
            if self._settings.idle_timeout:  # the engine may have started it nevertheless
                self._spawn(self._end_when_idle(wish.id))
            raise
        finally:
            self._starting -= 1
        slot = Slot(wish.id, api, AioShell(api), users=1, claim=claim, checked_at=_now())
        slot.last_use = next(self._uses)
        self._slots[wish.id] = slot
        return slot

    async def _started(self, wish: ContainerWish) -> tuple[AioApi, int | None]:
        """Find or start the container, claim it for this process and wait until it responds."""
        async with self._claims.starting(wish.id):
            api = await self._found(wish) or self._api(await self._backend.create(wish))
            claim = self._claims.use(wish.id)
        try:
            await wait_until_ready(api, seconds=READY_SECONDS)
        except BaseException:
            if claim is not None:
                self._claims.end_use(claim)
            raise
        return api, claim

    async def _found(self, wish: ContainerWish) -> AioApi | None:
        """Return the container that already runs; stop an unresponsive one unless another process uses it."""
        url = await self._backend.discover(wish)
        if url is None:
            return None
        api = self._api(url)
        try:
            await wait_until_ready(api, seconds=FOUND_SECONDS)
        except ContainerGoneError:
            with self._claims.unused(wish.id) as is_unused:
                if is_unused:
                    await self._backend.destroy(wish.id)
                    return None
        return api

    def _occupied(self, slot: Slot) -> bool:
        """Mark a container as used; return False while another process is stopping it."""
        if slot.retiring is not None:
            slot.retiring.cancel()
            slot.retiring = None
        slot.users += 1
        slot.last_use = next(self._uses)
        if slot.claim is None:
            slot.claim = self._claims.use(slot.id)
        return slot.claim is not None

    async def _is_well(self, slot: Slot) -> bool:
        skip = self._settings.health_check_skip_seconds
        if slot.users > 1 or _now() - slot.checked_at < (HEALTH_SKIP_SECONDS if skip is None else skip):
            return True
        slot.checked_at = _now()
        return await slot.api.is_ready()

    async def _reserve(self) -> None:
        """Reserve capacity for one more container, evicting the least recently used warm one when needed."""
        settings = self._settings
        most = settings.replicas
        if settings.overflow_policy == "burst":
            most = settings.replicas + settings.burst_limit if settings.burst_limit else 1_000_000
        while len(self._slots) + self._starting >= settings.replicas:
            idle = [slot for slot in self._slots.values() if not slot.users]
            if idle:
                oldest = min(idle, key=lambda slot: slot.last_use)
                self._forget(oldest)
                await self._destroy_unused(oldest.id, idle_seconds=0.0)
            elif len(self._slots) + self._starting < most:
                break
            elif settings.overflow_policy == "wait":
                await self._wait_for_room()
            else:
                raise self._full()
        self._starting += 1

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._settings.acquire_timeout), self._freed:
                await self._freed.wait_for(self._has_room)
        except TimeoutError as error:
            raise self._full() from error

    def _has_room(self) -> bool:
        taken = sum(1 for slot in self._slots.values() if slot.users) + self._starting
        return taken < self._settings.replicas

    def _full(self) -> SandboxUnavailableError:
        return SandboxUnavailableError(
            f"All {self._settings.replicas} sandbox containers are in use. Try again later, or raise "
            "sandbox.replicas."
        )

    async def _adopt(self) -> None:
        """Schedule the idle stop of containers that an earlier process left running."""
        if self._has_adopted:
            return
        self._has_adopted = True
        try:
            found = await self._backend.running()
        except DeerFlowError as error:
            logger.warning("running containers are not known: %s", error)
            return
        for container_id in found:
            if container_id not in self._slots and self._settings.idle_timeout:
                self._spawn(self._end_when_idle(container_id))

    def _retire_later(self, slot: Slot) -> None:
        if self._settings.idle_timeout:
            slot.retiring = self._spawn(self._retire(slot))

    async def _retire(self, slot: Slot) -> None:
        await asyncio.sleep(self._settings.idle_timeout)
        if self._slots.get(slot.id) is not slot or slot.users:
            return
        slot.retiring = None  # from here a new use must not cancel this task; it goes through `_fresh`
        del self._slots[slot.id]
        await self._end_when_idle(slot.id)

    async def _end_when_idle(self, container_id: str) -> None:
        """Stop a container once no process has used it for `idle_timeout`."""
        if container_id in self._ending:
            return
        self._ending.add(container_id)
        idle = float(self._settings.idle_timeout)
        try:
            while container_id not in self._slots:
                if await self._destroy_unused(container_id, idle_seconds=idle):
                    return
                await asyncio.sleep(idle)
        finally:
            self._ending.discard(container_id)

    async def _destroy_unused(self, container_id: str, *, idle_seconds: float) -> bool:
        """Stop a container that no process uses; return False when the caller should retry later."""
        try:
            async with self._claims.starting(container_id):
                with self._claims.unused(container_id, for_seconds=idle_seconds) as is_unused:
                    if is_unused:
                        await self._backend.destroy(container_id)
                    return is_unused
        except DeerFlowError as error:
            logger.warning("container %s could not be stopped: %s", container_id, error)
            return True

    def _forget(self, slot: Slot) -> None:
        if self._slots.get(slot.id) is slot:
            del self._slots[slot.id]
        if slot.retiring is not None:
            slot.retiring.cancel()
            slot.retiring = None

    async def _tell_waiters(self) -> None:
        async with self._freed:
            self._freed.notify_all()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _api(self, url: str) -> AioApi:
        if self._http is None:
            self._http = open_http()
        return AioApi(url, self._http)


def _now() -> float:
    return asyncio.get_running_loop().time()
