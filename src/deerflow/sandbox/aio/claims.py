"""Agreement between processes of one host on a container: who starts it, who still uses it.

Both are locks on files, which the system drops when a process dies.
"""

import asyncio
import fcntl
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from deerflow.errors import ConfigError, SandboxUnavailableError

FOLDER_NAME = "deerflow-sandboxes"
WAIT_SECONDS = 1000.0
PAUSE_SECONDS = 0.05


class Claims:
    """Locks below one folder, by container id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def starting(self, container_id: str) -> AsyncIterator[None]:
        """Be the only process that looks for, starts or stops the container."""
        handle = self._open(container_id, "start")
        try:
            await _locked_in_time(handle, container_id)
            yield
        finally:
            os.close(handle)

    def use(self, container_id: str) -> int | None:
        """Say that this process uses the container; None while another one stops it.

        The returned handle ends the use with `end_use`.
        """
        handle = self._open(container_id, "use")
        if _locked(handle, fcntl.LOCK_SH):
            return handle
        os.close(handle)
        return None

    def end_use(self, handle: int) -> None:
        """Give a use back, noting when."""
        with suppress(OSError):
            os.utime(handle)
        os.close(handle)

    @contextmanager
    def unused(self, container_id: str, *, for_seconds: float = 0.0) -> Iterator[bool]:
        """Tell whether no process uses the container, nor has for that long; none can begin in the block."""
        handle = self._open(container_id, "use")
        try:
            age = time.time() - os.fstat(handle).st_mtime
            # a hair less: the file system's clock is coarser than ours
            yield age + 0.02 >= for_seconds and _locked(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)

    def _open(self, container_id: str, kind: str) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return os.open(self._folder / f"{container_id}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def default_folder() -> Path:
    """Return the folder that all processes of this user share, which nobody else may write."""
    folder = Path(tempfile.gettempdir()) / f"{FOLDER_NAME}-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o777 != 0o700:
        raise ConfigError(f"{folder} is not ours alone; remove it, or set TMPDIR to a folder of your own")
    return folder


async def _locked_in_time(handle: int, container_id: str) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            # nobody can wake us: the other holder is another process
            while not _locked(handle, fcntl.LOCK_EX):  # noqa: ASYNC110
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError as error:
        raise SandboxUnavailableError(
            f"Another process has been starting container {container_id} for {WAIT_SECONDS:g}s; try later."
        ) from error


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
