"""Pool of the containers of one process: in use, warm (idle), or starting.

Lock files coordinate the processes of one host that start, use and stop containers; the kernel releases the
locks when a process dies.
"""

import asyncio
import fcntl
import itertools
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from deerflow.config import SandboxSettings
from deerflow.errors import ConfigError, DeerFlowError, SandboxUnavailableError
from deerflow.sandbox.aio.api import AioApi, AioShell, ContainerGoneError, open_http, wait_until_ready
from deerflow.sandbox.aio.backends import ContainerBackend, ContainerSpec
from deerflow.sandbox.base import FileLocks

logger = logging.getLogger(__name__)

READY_SECONDS = 120.0
"""Maximum time from a container's start to its first response."""
FOUND_SECONDS = 20.0
"""Maximum time until a container that already runs responds."""
HEALTH_SKIP_SECONDS = 5.0
FOLDER_NAME = "deerflow-sandboxes"
WAIT_SECONDS = 1000.0
PAUSE_SECONDS = 0.05


class ContainerLocks:
    """Lock files in one folder, by container id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def starting(self, container_id: str) -> AsyncIterator[None]:
        """Hold the exclusive lock for discovering, starting or stopping the container."""
        handle = self._open(container_id, "start")
        try:
            await _lock_in_time(handle, container_id)
            yield
        finally:
            os.close(handle)

    def use(self, container_id: str) -> int | None:
        """Take the shared lock of a user of the container; None while another process stops it.

        Release the returned handle with `release_use`.
        """
        handle = self._open(container_id, "use")
        if _lock(handle, fcntl.LOCK_SH):
            return handle
        os.close(handle)
        return None

    def release_use(self, handle: int) -> None:
        """Release a use and record its time."""
        with suppress(OSError):
            os.utime(handle)
        os.close(handle)

    @contextmanager
    def unused(self, container_id: str, *, for_seconds: float = 0.0) -> Iterator[bool]:
        """Yield whether the container has been unused for that long; if so, no use can start in the block."""
        handle = self._open(container_id, "use")
        try:
            age = time.time() - os.fstat(handle).st_mtime
            # with tolerance: the file system's clock is coarser than `time.time`
            yield age + 0.02 >= for_seconds and _lock(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)

    def _open(self, container_id: str, kind: str) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return os.open(self._folder / f"{container_id}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def default_folder() -> Path:
    """Return the folder shared by all processes of this user and inaccessible to other users."""
    folder = Path(tempfile.gettempdir()) / f"{FOLDER_NAME}-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o777 != 0o700:
        raise ConfigError(f"{folder} is not ours alone; remove it, or set TMPDIR to a folder of your own")
    return folder


async def _lock_in_time(handle: int, container_id: str) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            # poll: the holder is another process and cannot notify this one
            while not _lock(handle, fcntl.LOCK_EX):  # noqa: ASYNC110
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError as error:
        raise SandboxUnavailableError(
            f"Another process has been starting container {container_id} for {WAIT_SECONDS:g}s; try later."
        ) from error


def _lock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(slots=True)
class PooledContainer:
    """A container in the pool."""

    id: str
    api: AioApi
    shell: AioShell
    users: int = 0
    """Number of current users; 0 means warm."""
    use_lock: int | None = None
    last_use: int = 0
    """Sequence number of the last use: the smallest is evicted first."""
    checked_at: float = 0.0
    retiring: asyncio.Task[None] | None = None


class Pool:
    """Returns a thread's container: from the pool, else discovered as running, else started."""

    def __init__(self, backend: ContainerBackend, locks: ContainerLocks, settings: SandboxSettings) -> None:
        self._backend = backend
        self._use_locks = locks
        self._settings = settings
        self._containers: dict[str, PooledContainer] = {}
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

    async def acquire(self, spec: ContainerSpec) -> PooledContainer:
        async with self._locks.hold(spec.id):
            container = self._containers.get(spec.id)
            if container is not None:
                try:
                    if self._mark_used(container) and await self._is_healthy(container):
                        return container
                except asyncio.CancelledError:
                    self.release(container)  # the cancelled caller cannot release it
                    raise
                await self.drop(container)
            return await self._acquire_new(spec)

    def release(self, container: PooledContainer) -> None:
        """Release the container; without users it stays warm until the idle timeout."""
        container.users = max(0, container.users - 1)
        if container.users:
            return
        if container.use_lock is not None:
            self._use_locks.release_use(container.use_lock)
            container.use_lock = None
        if self._containers.get(container.id) is container:
            if self._settings.idle_timeout:
                container.retiring = self._spawn(self._retire(container))
            self._spawn(self._notify_waiters())

    async def drop(self, container: PooledContainer) -> None:
        """Remove an unresponsive container from the pool; stop it unless it responds again."""
        self._remove(container)
        self.release(container)
        if not await container.api.is_ready():
            await self._destroy_unused(container.id, idle_seconds=0.0)
        await self._notify_waiters()

    async def discard(self, container_id: str) -> None:
        """Stop a container left by an earlier thread with the same id, unless it is in use."""
        async with self._locks.hold(container_id):
            container = self._containers.get(container_id)
            if container is None or not container.users:
                if container is not None:
                    self._remove(container)
                await self._destroy_unused(container_id, idle_seconds=0.0)

    async def aclose(self) -> None:
        """Stop every container of this process that no other process uses."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        containers = list(self._containers.values())
        self._containers.clear()
        for container in containers:
            if container.use_lock is not None:
                self._use_locks.release_use(container.use_lock)
                container.use_lock = None
        await asyncio.gather(
            *(self._destroy_unused(container.id, idle_seconds=0.0) for container in containers)
        )
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _acquire_new(self, spec: ContainerSpec) -> PooledContainer:
        await self._adopt()
        await self._reserve()
        try:
            api, use_lock = await self._start(spec)
        except BaseException:
            self._spawn(self._notify_waiters())
            if self._settings.idle_timeout:  # the engine may have started it nevertheless
                self._spawn(self._end_when_idle(spec.id))
            raise
        finally:
            self._starting -= 1
        container = PooledContainer(
            spec.id, api, AioShell(api), users=1, use_lock=use_lock, checked_at=_now()
        )
        container.last_use = next(self._uses)
        self._containers[spec.id] = container
        return container

    async def _start(self, spec: ContainerSpec) -> tuple[AioApi, int | None]:
        """Find or start the container, lock it for this process and wait until it responds."""
        async with self._use_locks.starting(spec.id):
            api = await self._found(spec) or self._api(await self._backend.create(spec))
            use_lock = self._use_locks.use(spec.id)
        try:
            await wait_until_ready(api, seconds=READY_SECONDS)
        except BaseException:
            if use_lock is not None:
                self._use_locks.release_use(use_lock)
            raise
        return api, use_lock

    async def _found(self, spec: ContainerSpec) -> AioApi | None:
        """Return the container that already runs; stop an unresponsive one unless another process uses it."""
        url = await self._backend.discover(spec)
        if url is None:
            return None
        api = self._api(url)
        try:
            await wait_until_ready(api, seconds=FOUND_SECONDS)
        except ContainerGoneError:
            with self._use_locks.unused(spec.id) as is_unused:
                if is_unused:
                    await self._backend.destroy(spec.id)
                    return None
        return api

    def _mark_used(self, container: PooledContainer) -> bool:
        """Mark a container as used; return False while another process is stopping it."""
        if container.retiring is not None:
            container.retiring.cancel()
            container.retiring = None
        container.users += 1
        container.last_use = next(self._uses)
        if container.use_lock is None:
            container.use_lock = self._use_locks.use(container.id)
        return container.use_lock is not None

    async def _is_healthy(self, container: PooledContainer) -> bool:
        skip = self._settings.health_check_skip_seconds
        if container.users > 1 or _now() - container.checked_at < (
            HEALTH_SKIP_SECONDS if skip is None else skip
        ):
            return True
        container.checked_at = _now()
        return await container.api.is_ready()

    async def _reserve(self) -> None:
        """Reserve capacity for one more container, evicting the least recently used warm one when needed."""
        settings = self._settings
        full = SandboxUnavailableError(
            f"All {settings.replicas} sandbox containers are in use. Try again later, or raise "
            "sandbox.replicas."
        )
        most = settings.replicas
        if settings.overflow_policy == "burst":
            most = settings.replicas + settings.burst_limit if settings.burst_limit else 1_000_000
        while len(self._containers) + self._starting >= settings.replicas:
            idle = [container for container in self._containers.values() if not container.users]
            if idle:
                oldest = min(idle, key=lambda container: container.last_use)
                self._remove(oldest)
                await self._destroy_unused(oldest.id, idle_seconds=0.0)
            elif len(self._containers) + self._starting < most:
                break
            elif settings.overflow_policy == "wait":
                try:
                    async with asyncio.timeout(settings.acquire_timeout), self._freed:
                        await self._freed.wait_for(self._has_capacity)
                except TimeoutError as error:
                    raise full from error
            else:
                raise full
        self._starting += 1

    def _has_capacity(self) -> bool:
        taken = sum(1 for container in self._containers.values() if container.users) + self._starting
        return taken < self._settings.replicas

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
            if container_id not in self._containers and self._settings.idle_timeout:
                self._spawn(self._end_when_idle(container_id))

    async def _retire(self, container: PooledContainer) -> None:
        await asyncio.sleep(self._settings.idle_timeout)
        if self._containers.get(container.id) is not container or container.users:
            return
        container.retiring = (
            None  # from here a new use must not cancel this task; it goes through `_acquire_new`
        )
        del self._containers[container.id]
        await self._end_when_idle(container.id)

    async def _end_when_idle(self, container_id: str) -> None:
        """Stop a container once no process has used it for `idle_timeout`."""
        if container_id in self._ending:
            return
        self._ending.add(container_id)
        idle = float(self._settings.idle_timeout)
        try:
            while container_id not in self._containers:
                if await self._destroy_unused(container_id, idle_seconds=idle):
                    return
                await asyncio.sleep(idle)
        finally:
            self._ending.discard(container_id)

    async def _destroy_unused(self, container_id: str, *, idle_seconds: float) -> bool:
        """Stop a container that no process uses; return False when the caller should retry later."""
        try:
            async with self._use_locks.starting(container_id):
                with self._use_locks.unused(container_id, for_seconds=idle_seconds) as is_unused:
                    if is_unused:
                        await self._backend.destroy(container_id)
                    return is_unused
        except DeerFlowError as error:
            logger.warning("container %s could not be stopped: %s", container_id, error)
            return True

    def _remove(self, container: PooledContainer) -> None:
        if self._containers.get(container.id) is container:
            del self._containers[container.id]
        if container.retiring is not None:
            container.retiring.cancel()
            container.retiring = None

    async def _notify_waiters(self) -> None:
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
