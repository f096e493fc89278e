"""Files that an agent made, opened for people to see: never through a link that leads out."""

import hashlib
import mimetypes
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from deerflow.domain import ThreadFolders
from deerflow.errors import NotFoundError, PathRefusedError
from deerflow.sandbox.beneath import O_DIRECTORY, open_beneath

VIRTUAL_ROOT = "/mnt/user-data"
_ACTIVE = re.compile(r"text/html|.*[/+]xml")
"""What a browser would run: HTML, and everything XML, which may hold HTML or SVG."""
_BLOCK = 1 << 20
_MOST_HASHED = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Artifact:
    """An open file of a thread; whoever opened it closes it (`contextlib.closing`)."""

    fd: int
    name: str
    size: int
    modified_ns: int
    media_type: str

    @property
    def is_active(self) -> bool:
        """Tell whether a browser would run what is in it."""
        return _ACTIVE.fullmatch(self.media_type) is not None

    def close(self) -> None:
        os.close(self.fd)

    def tag(self) -> str:
        """Return what tells two versions apart: the SHA-256, or a weak tag for a file too large to hash."""
        if self.size > _MOST_HASHED:
            return f'W/"{self.size:x}-{self.modified_ns:x}"'
        total = hashlib.sha256()
        for start in range(0, self.size, _BLOCK):
            total.update(os.pread(self.fd, _BLOCK, start))
        return f'"{total.hexdigest()}"'

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, not including, `end`."""
        while start < end:
            block = os.pread(self.fd, min(_BLOCK, end - start), start)
            if not block:
                return
            yield block
            start += len(block)


def open_artifact(folders: ThreadFolders, path: str) -> Artifact:
    """Open `/mnt/user-data/…` of a thread."""
    parts = _parts(path)
    try:
        root = os.open(folders.user_data, os.O_RDONLY | O_DIRECTORY)
    except FileNotFoundError as error:
        raise NotFoundError("artifact", path[:200]) from error
    try:
        fd = _open(root, parts, path)
    finally:
        os.close(root)
    entry = os.fstat(fd)
    if not stat.S_ISREG(entry.st_mode):
        os.close(fd)
        raise NotFoundError("artifact", path[:200])
    if entry.st_nlink > 1:
        os.close(fd)
        raise PathRefusedError(f"'{path[:200]}' has more than one name (a hard link); make a copy of it")
    media_type = mimetypes.guess_type(parts[-1])[0] or "application/octet-stream"
    return Artifact(fd, parts[-1], entry.st_size, entry.st_mtime_ns, media_type)


def _open(root: int, parts: list[str], path: str) -> int:
    try:
        return open_beneath(root, parts, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("artifact", path[:200]) from error
    except OSError as error:
        raise PathRefusedError(f"'{path[:200]}' cannot be opened: {error.strerror}") from error


def _parts(path: str) -> list[str]:
    pure = PurePosixPath("/" + path.lstrip("/"))
    if ".." in pure.parts or "\x00" in path or not str(pure).startswith(VIRTUAL_ROOT + "/"):
        raise PathRefusedError(f"'{path[:200]}' is not below {VIRTUAL_ROOT}")
    return list(pure.relative_to(VIRTUAL_ROOT).parts)
