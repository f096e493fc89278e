"""Base class of sandboxes whose files are on this host: everything except running commands."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from typing_extensions import override

from deerflow.errors import SandboxError
from deerflow.sandbox.base import Match, Sandbox, content_version
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.grep import Query, grep
from deerflow.sandbox.paths import ResolvedPath, shown
from deerflow.sandbox.searching import MAX_GLOB_COST, WalkEntry, glob_cost, path_filter, walk

TEXT_MAX_BYTES = 8 * 1024 * 1024
BYTES_MAX = 256 * 1024 * 1024
INLINE_BYTES = 64 * 1024
"""Up to this size a read or write is faster than dispatching it to a thread."""
LISTING_MAX_ENTRIES = 5000
GLOB_MAX_RESULTS = 1000
WALK_SECONDS = 10.0


class HostedSandbox(Sandbox):
    """Implements the file operations of `Sandbox` on a thread's folders.

    Args:
        create_folders: Called once, before the first operation: every run acquires a sandbox, and a run that
            only talks should not wait for a dozen system calls before its first token.
    """

    def __init__(self, files: ThreadFiles, create_folders: Callable[[], None] | None = None) -> None:
        self._files = files
        self._create_folders = create_folders
        self.is_prepared = create_folders is None

    @property
    def files(self) -> ThreadFiles:
        """The thread's files, whose folders exist."""
        self.prepare()
        return self._files

    @override
    def prepare(self) -> None:
        if self._create_folders is not None and not self.is_prepared:
            self._create_folders()
            self.is_prepared = True

    @override
    def editing(self, path: str) -> AbstractAsyncContextManager[None]:
        return super().editing(self.files.table.resolve(path).virtual)

    @override
    async def read_file(self, path: str) -> str:
        data = await self.download_file(path, max_bytes=TEXT_MAX_BYTES)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16", "replace")
        if b"\0" in data[:8192]:
            raise SandboxError(
                f"{shown(path)} is a binary file of {_size(len(data))}, not text; "
                "use bash (file, xxd, strings) or a tool made for its format"
            )
        return data.decode("utf-8", "replace")

    @override
    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        limit = BYTES_MAX if max_bytes is None else max_bytes
        with self.files.open_file(path) as fd:
            size = os.fstat(fd).st_size
            if size > limit:
                raise SandboxError(
                    f"{shown(path)} has {_size(size)}, more than the {_size(limit)} that fit here; "
                    "look at parts of it with bash (head, tail, sed -n) or search it with grep"
                )
            if size <= INLINE_BYTES:
                return _read_all(fd, limit)
            return await asyncio.to_thread(_read_all, fd, limit)

    @override
    async def file_version(self, path: str) -> str | None:
        """Return a hash of the content; for a file too large to read, a hash of inode, size and time."""
        try:
            with self.files.open_file(path) as fd:
                about = os.fstat(fd)
                if about.st_size <= INLINE_BYTES:
                    return content_version(_read_all(fd, INLINE_BYTES + 1))
                if about.st_size <= TEXT_MAX_BYTES:
                    return await asyncio.to_thread(lambda: content_version(_read_all(fd, BYTES_MAX)))
                return content_version(repr((about.st_ino, about.st_size, about.st_mtime_ns)).encode())
        except SandboxError:  # no such file, or access is refused: a later write reports that
            return None

    @override
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        await self._write(path, content.encode("utf-8", "surrogatepass"), append=append)

    @override
    async def update_file(self, path: str, content: bytes) -> None:
        await self._write(path, content)

    async def _write(self, path: str, data: bytes, *, append: bool = False) -> None:
        async with self.editing(path):
            resolved = self.files.table.resolve_for_writing(path)
            if len(data) > BYTES_MAX:
                raise SandboxError(
                    f"{_size(len(data))} are too much for one file; the limit is {_size(BYTES_MAX)}"
                )
            write = self.files.append if append else self.files.replace
            if len(data) <= INLINE_BYTES:
                write(resolved, data)
            else:
                await asyncio.to_thread(write, resolved, data)

    @override
    async def list_dir(self, path: str, *, max_depth: int = 2) -> list[str]:
        return await asyncio.to_thread(self._list_dir, path, max(1, min(max_depth, 16)))

    @override
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        if not pattern or len(pattern) > 1000 or "\0" in pattern:
            raise SandboxError("the pattern must have 1 to 1000 characters, such as **/*.py")
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise SandboxError(
                "the pattern is relative to `path`: write it without a leading '/' and without '..'"
            )
        if glob_cost(pattern) > MAX_GLOB_COST:
            raise SandboxError("the pattern has too many parts; use fewer '/' and fewer {…,…}")
        limit = max(1, min(max_results, GLOB_MAX_RESULTS))
        return await asyncio.to_thread(self._glob, path, pattern, include_dirs, limit)

    @override
    async def grep(
        self,
        path: str,
        pattern: str,
        *,
        glob: str | None = None,
        literal: bool = False,
        case_sensitive: bool = False,
        max_results: int = 100,
    ) -> tuple[list[Match], bool]:
        return await self.search(path, Query(pattern, glob, literal, case_sensitive, max_results))

    async def search(self, path: str, query: Query) -> tuple[list[Match], bool]:
        """Return the lines that match `query`; a sandbox with a faster search overrides this."""
        return await grep(self.files, path, query)

    def _list_dir(self, path: str, max_depth: int) -> list[str]:
        roots = self.files.table.resolve_folders(path)
        found: list[str] = []
        for root in roots:
            if not root.parts and not root.mapping.host.is_dir():
                if len(roots) == 1:
                    raise SandboxError(
                        f"{shown(path)} does not exist; list its parent folder to see what does"
                    )
                continue
            if len(roots) > 1:
                found.append(f"{root.virtual}/")
            with self.files.open_folder(root) as folder:
                for entry in walk(folder, depth=max_depth):
                    found.append(_as_listed(root, entry))
                    if len(found) >= LISTING_MAX_ENTRIES:
                        more = f"[more than {LISTING_MAX_ENTRIES} entries; list a folder below]"
                        return [*sorted(found), more]
        return sorted(found)

    def _glob(self, path: str, pattern: str, include_dirs: bool, limit: int) -> tuple[list[str], bool]:
        matches = path_filter(pattern)
        until = time.monotonic() + WALK_SECONDS
        found: list[str] = []
        for root in self.files.table.resolve_folders(path):
            with self.files.open_folder(root) as folder:
                for entry in walk(folder):
                    if time.monotonic() > until:
                        return found, True
                    if (entry.is_dir and not include_dirs) or not matches(entry.path):
                        continue
                    if len(found) == limit:
                        return found, True
                    found.append(_as_listed(root, entry))
        return found, False


def _as_listed(root: ResolvedPath, entry: WalkEntry) -> str:
    return shown(f"{root.virtual}/{entry.path}") + ("/" if entry.is_dir else "")


def _read_all(fd: int, max_bytes: int) -> bytes:
    """Read an open file to its end, or to `max_bytes` if it grows meanwhile."""
    chunks = []
    left = max_bytes
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 20))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _size(number: int) -> str:
    return f"{number / 1_048_576:.1f} MB" if number >= 1_048_576 else f"{number} bytes"
