"""File operations on a thread's folders, shared by all sandboxes whose files are on this host."""

import asyncio
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deerflow.errors import SandboxError
from deerflow.sandbox.base import content_version
from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH, make_folders, open_beneath
from deerflow.sandbox.paths import PathMapping, PathTable, Place, shown
from deerflow.sandbox.regular_files import (
    OpenFile,
    explained,
    mode_of_present,
    read_all,
    refuse_special,
    write_all,
)
from deerflow.sandbox.searching import MAX_GLOB_COST, Entry, Folder, glob_cost, path_filter, walk

TEXT_MAX_BYTES = 8 * 1024 * 1024
BYTES_MAX = 256 * 1024 * 1024
INLINE_BYTES = 64 * 1024
"""Up to this size a read or write is faster than dispatching it to a thread."""
LISTING_MAX_ENTRIES = 5000
GLOB_MAX_RESULTS = 1000
WALK_SECONDS = 10.0


class ThreadFiles:
    """Reads and writes the files behind a `PathTable`, never through a link that leads out.

    Args:
        table: The virtual paths of the thread.
        owner: The user who runs the thread's commands, when that is not the user of this process;
            new files and folders are chowned to that user.
    """

    def __init__(self, table: PathTable, *, owner: int | None = None) -> None:
        self.table = table
        self._owner = owner

    async def read(self, path: str, *, max_bytes: int = BYTES_MAX) -> bytes:
        """Return a file's bytes."""
        with self._opened(path) as file:
            if file.size > max_bytes:
                raise SandboxError(
                    f"{shown(path)} has {_size(file.size)}, more than the {_size(max_bytes)} that fit here; "
                    "look at parts of it with bash (head, tail, sed -n) or search it with grep"
                )
            if file.size <= INLINE_BYTES:
                return read_all(file.fd, max_bytes)
            return await asyncio.to_thread(read_all, file.fd, max_bytes)

    async def version(self, path: str) -> str | None:
        """Return a hash of the content; for a file too large to read, a hash of inode, size and time."""
        try:
            with self._opened(path) as file:
                if file.size <= INLINE_BYTES:
                    return content_version(read_all(file.fd, INLINE_BYTES + 1))
                if file.size <= TEXT_MAX_BYTES:
                    return await asyncio.to_thread(lambda: content_version(read_all(file.fd, BYTES_MAX)))
                about = os.fstat(file.fd)
                return content_version(repr((about.st_ino, about.st_size, about.st_mtime_ns)).encode())
        except SandboxError:  # no such file, or access is refused: a later write reports that
            return None

    async def read_text(self, path: str) -> str:
        """Return a file's text; refuse a binary or oversized file with a message."""
        data = await self.read(path, max_bytes=TEXT_MAX_BYTES)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16", "replace")
        if b"\0" in data[:8192]:
            raise SandboxError(
                f"{shown(path)} is a binary file of {_size(len(data))}, not text; "
                "use bash (file, xxd, strings) or a tool made for its format"
            )
        return data.decode("utf-8", "replace")

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Replace a file atomically, or append to it; create missing folders."""
        place = self.table.locate_for_writing(path)
        if len(data) > BYTES_MAX:
            raise SandboxError(
                f"{_size(len(data))} are too much for one file; the limit is {_size(BYTES_MAX)}"
            )
        put = self._append if append else self._replace
        if len(data) <= INLINE_BYTES:
            put(place, data)
        else:
            await asyncio.to_thread(put, place, data)

    async def list_dir(self, path: str, *, max_depth: int) -> list[str]:
        """Return the entries below `path`; folders have a trailing slash."""
        return await asyncio.to_thread(self._list_dir, path, max(1, min(max_depth, 16)))

    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool, limit: int
    ) -> tuple[list[str], bool]:
        """Return the paths below `path` that match `pattern`, and whether the results were truncated."""
        _check_glob(pattern)
        limit = max(1, min(limit, GLOB_MAX_RESULTS))
        return await asyncio.to_thread(self._glob, path, pattern, include_dirs, limit)

    @contextmanager
    def open_folder(self, place: Place) -> Iterator[Folder]:
        """Open a folder for walking."""
        with explained(place.virtual), self._root(place.mapping) as root:
            folder = open_beneath(root, place.parts, os.O_RDONLY | O_DIRECTORY)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _opened(self, path: str) -> Iterator[OpenFile]:
        place = self.table.locate(path)
        with explained(path), self._root(place.mapping) as root:
            fd = open_beneath(root, place.parts, os.O_RDONLY)
        try:
            about = os.fstat(fd)
            refuse_special(about, path)
            yield OpenFile(fd, about.st_size)
        finally:
            os.close(fd)

    @contextmanager
    def _root(self, mapping: PathMapping) -> Iterator[int]:
        root = os.open(mapping.host, O_PATH | O_DIRECTORY)
        try:
            yield root
        finally:
            os.close(root)

    @contextmanager
    def _parent(self, place: Place) -> Iterator[int]:
        with self._root(place.mapping) as root:
            parent = make_folders(root, place.parts[:-1], owner=self._owner)
        try:
            yield parent
        finally:
            os.close(parent)

    def _replace(self, place: Place, data: bytes) -> None:
        name = place.parts[-1]
        with explained(place.virtual), self._parent(place) as parent:
            mode = mode_of_present(parent, name, place.virtual)
            draft = f".{secrets.token_hex(8)}.part"
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
            try:
                self._hand_over(fd, mode)
                write_all(fd, data)
                os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=parent)
                raise
            finally:
                os.close(fd)

    def _append(self, place: Place, data: bytes) -> None:
        with explained(place.virtual), self._parent(place) as parent:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
            try:
                fd = open_beneath(parent, place.parts[-1:], flags)
            except FileNotFoundError:
                fd = open_beneath(parent, place.parts[-1:], flags | os.O_CREAT | os.O_EXCL, 0o600)
                self._hand_over(fd, 0o644)
            try:
                refuse_special(os.fstat(fd), place.virtual)
                write_all(fd, data)
            finally:
                os.close(fd)

    def _hand_over(self, fd: int, mode: int) -> None:
        if self._owner is not None:
            os.fchown(fd, self._owner, self._owner)
        os.fchmod(fd, mode)

    def _list_dir(self, path: str, max_depth: int) -> list[str]:
        places = self.table.places_below(path)
        found: list[str] = []
        for place in places:
            if not self._is_there(place):
                if len(places) == 1:
                    raise SandboxError(
                        f"{shown(path)} does not exist; list its parent folder to see what does"
                    )
                continue
            if len(places) > 1:
                found.append(f"{place.virtual}/")
            with self.open_folder(place) as folder:
                for entry in walk(folder, depth=max_depth):
                    found.append(_as_listed(place, entry))
                    if len(found) >= LISTING_MAX_ENTRIES:
                        return [
                            *sorted(found),
                            f"[more than {LISTING_MAX_ENTRIES} entries; list a folder below]",
                        ]
        return sorted(found)

    def _glob(self, path: str, pattern: str, include_dirs: bool, limit: int) -> tuple[list[str], bool]:
        fits = path_filter(pattern)
        until = time.monotonic() + WALK_SECONDS
        found: list[str] = []
        for place in self.table.places_below(path):
            with self.open_folder(place) as folder:
                for entry in walk(folder):
                    if time.monotonic() > until:
                        return found, True
                    if (entry.is_dir and not include_dirs) or not fits(entry.path):
                        continue
                    if len(found) == limit:
                        return found, True
                    found.append(_as_listed(place, entry))
        return found, False

    def _is_there(self, place: Place) -> bool:
        return bool(place.parts) or place.mapping.host.is_dir()


def _as_listed(place: Place, entry: Entry) -> str:
    return shown(f"{place.virtual}/{entry.path}") + ("/" if entry.is_dir else "")


def _check_glob(pattern: str) -> None:
    if not pattern or len(pattern) > 1000 or "\0" in pattern:
        raise SandboxError("the pattern must have 1 to 1000 characters, such as **/*.py")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise SandboxError(
            "the pattern is relative to `path`: write it without a leading '/' and without '..'"
        )
    if glob_cost(pattern) > MAX_GLOB_COST:
        raise SandboxError("the pattern has too many parts; use fewer '/' and fewer {…,…}")


def _size(number: int) -> str:
    return f"{number / 1_048_576:.1f} MB" if number >= 1_048_576 else f"{number} bytes"
