"""Scans a thread's folders without following links."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from deerflow.errors import TooLargeError
from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH, open_beneath

MOST_ENTRIES = 200_000
"""How many paths of a thread are scanned, at a few hundred bytes of memory each."""
_SCOPES = ("workspace", "outputs", "uploads")


class Kind(IntEnum):
    """The type of a path."""

    FOLDER = 0
    FILE = 1
    LINK = 2
    OTHER = 3
    """A pipe, a socket or a device: it has no content to keep."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a snapshot."""

    kind: Kind
    path: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    size: int
    content: bytes = b""
    """A file's digest, a link's target."""

    @property
    def parts(self) -> list[str]:
        return os.fsdecode(self.path).split("/")

    def is_unchanged(self, now: "Entry") -> bool:
        """Return whether a file and its content are the same, by attributes that programs cannot set."""
        return (self.kind, self.size, self.ctime_ns, self.inode) == (
            now.kind,
            now.size,
            now.ctime_ns,
            now.inode,
        )


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder as the root of a scan."""
    descriptor = os.open(folder, O_PATH | O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def scan(root: int, *, most: int = MOST_ENTRIES) -> Iterator[Entry]:
    """Yield all entries of a thread's folders, each folder before its contents; links are not followed.

    `TooLargeError` beyond `most` entries: a command may create millions, and callers keep all in memory.
    """
    for count, entry in enumerate(_entries(root), 1):
        if count > most:
            raise TooLargeError(f"the thread has more than {most} files")
        yield entry


def _entries(root: int) -> Iterator[Entry]:
    waiting: list[tuple[str, ...]] = [(scope,) for scope in reversed(_SCOPES)]
    while waiting:
        parts = waiting.pop()
        try:
            folder = open_beneath(root, parts, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            with os.scandir(folder) as items:
                for item in items:
                    entry = _entry(folder, parts, item)
                    if entry is None:
                        continue
                    yield entry
                    if entry.kind is Kind.FOLDER:
                        waiting.append((*parts, item.name))
        finally:
            os.close(folder)


def _entry(folder: int, parts: tuple[str, ...], item: os.DirEntry[str]) -> Entry | None:
    """Return the entry of a name; None when it was deleted meanwhile."""
    try:
        status = item.stat(follow_symlinks=False)
        kind = _kind(status.st_mode)
        target = os.fsencode(os.readlink(item.name, dir_fd=folder)) if kind is Kind.LINK else b""
    except FileNotFoundError:
        return None
    return Entry(
        kind=kind,
        path=os.fsencode("/".join((*parts, item.name))),
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        size=status.st_size if kind is Kind.FILE else 0,
        content=target,
    )


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER
