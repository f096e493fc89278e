"""File locks by which the processes of one host coordinate starting, using and stopping a container.

The kernel releases them when a process dies.
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
    """Lock files in one folder, by container id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def starting(self, container_id: str) -> AsyncIterator[None]:
        """Hold the exclusive lock for discovering, starting or stopping the container."""
        handle = self._open(container_id, "start")
        try:
            await _locked_in_time(handle, container_id)
            yield
        finally:
            os.close(handle)

    def use(self, container_id: str) -> int | None:
        """Take the shared lock of a user of the container; None while another process stops it.

        Release the returned handle with `end_use`.
        """
        handle = self._open(container_id, "use")
        if _locked(handle, fcntl.LOCK_SH):
            return handle
        os.close(handle)
        return None

    def end_use(self, handle: int) -> None:
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
            yield age + 0.02 >= for_seconds and _locked(handle, fcntl.LOCK_EX)
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


async def _locked_in_time(handle: int, container_id: str) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            # poll: the holder is another process and cannot notify this one
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
