"""Base class of sandboxes whose files are on this host: everything except running commands."""

from contextlib import AbstractAsyncContextManager

from typing_extensions import override

from deerflow.sandbox.base import Match, Sandbox
from deerflow.sandbox.files import BYTES_MAX, ThreadFiles
from deerflow.sandbox.grep import Query, grep


class HostedSandbox(Sandbox):
    """Implements the file operations of `Sandbox` on a thread's folders."""

    def __init__(self, files: ThreadFiles) -> None:
        self.files = files

    @override
    def editing(self, path: str) -> AbstractAsyncContextManager[None]:
        return super().editing(self.files.table.locate(path).virtual)

    @override
    async def read_file(self, path: str) -> str:
        return await self.files.read_text(path)

    @override
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        async with self.editing(path):
            await self.files.write(path, content.encode("utf-8", "surrogatepass"), append=append)

    @override
    async def update_file(self, path: str, content: bytes) -> None:
        async with self.editing(path):
            await self.files.write(path, content)

    @override
    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        return await self.files.read(path, max_bytes=BYTES_MAX if max_bytes is None else max_bytes)

    @override
    async def file_version(self, path: str) -> str | None:
        return await self.files.version(path)

    @override
    async def list_dir(self, path: str, *, max_depth: int = 2) -> list[str]:
        return await self.files.list_dir(path, max_depth=max_depth)

    @override
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        return await self.files.glob(path, pattern, include_dirs=include_dirs, limit=max_results)

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
