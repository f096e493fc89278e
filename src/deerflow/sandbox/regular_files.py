"""Reads and writes regular files by descriptor; errors become messages for the model."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deerflow.errors import PathRefusedError, SandboxError
from deerflow.sandbox.paths import shown


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open regular file and its size."""

    fd: int
    size: int


def refuse_special(about: os.stat_result, path: str) -> None:
    """Raise unless it is a regular file with a single hard link."""
    if stat.S_ISDIR(about.st_mode):
        raise PathRefusedError(f"{shown(path)} is a folder; name a file, or list it with ls")
    if not stat.S_ISREG(about.st_mode):
        raise PathRefusedError(f"{shown(path)} is not a regular file; use a regular file instead")
    if about.st_nlink > 1:
        raise PathRefusedError(
            f"{shown(path)} has more than one name (a hard link); make a copy and use that"
        )


def mode_of_present(parent: int, name: str, path: str) -> int:
    """Return the permissions of the file to be replaced; raise unless it is a regular file."""
    try:
        about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISLNK(about.st_mode):
        raise PathRefusedError(
            f"{shown(path)} is a link; write to the file it stands for, or remove it first"
        )
    refuse_special(about, path)
    return stat.S_IMODE(about.st_mode) & 0o777


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Convert an `OSError` into a `SandboxError` with a message for the model."""
    try:
        yield
    except OSError as error:
        raise _explanation(error, path) from error


def _explanation(error: OSError, path: str) -> SandboxError:
    name = shown(path)
    match error.errno:
        case errno.ENOENT:
            return SandboxError(f"{name} does not exist; use ls or glob to find the right path")
        case errno.ELOOP | errno.EXDEV:
            return PathRefusedError(f"{name} goes through a link that is not followed; name the real file")
        case errno.ENOTDIR:
            return PathRefusedError(f"{name} is not a folder, or goes through something that is none")
        case errno.EISDIR | errno.ENOTEMPTY:
            return PathRefusedError(f"{name} is a folder; name a file below it")
        case errno.ENXIO | errno.ENODEV:
            return PathRefusedError(f"{name} is not a regular file; use a regular file instead")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return PathRefusedError(f"{name} may not be used: {error.strerror}; choose another file")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return SandboxError(
                f"{name} could not be written: the disk is full; remove files that are not needed"
            )
        case errno.ENAMETOOLONG:
            return PathRefusedError(f"{name} is too long; use a shorter name")
        case _:
            return SandboxError(f"{name} could not be used: {error.strerror}")


def read_all(fd: int, max_bytes: int) -> bytes:
    """Read an open file to its end, or to `max_bytes` if it grows meanwhile."""
    chunks = []
    left = max_bytes
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 20))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, also when `os.write` is partial."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
