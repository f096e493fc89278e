"""What every sandbox can do, and how one is lent to a run."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxError
from deerflow.sandbox.locks import FileLocks
from deerflow.sandbox.selftest import SelfTest

OutputListener = Callable[[str], None]
"""Called with each piece of output while a command runs."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left behind."""

    exit_code: int
    output: str
    """Standard output and error as they came, cut in the middle when too long."""


@dataclass(frozen=True, slots=True)
class Match:
    """One line that a search found."""

    path: str
    line: int
    text: str


class Sandbox(ABC):
    """A place where one thread's commands and files live; starts nothing before its first command.

    Paths are virtual (`/mnt/user-data/workspace/…`) everywhere in this interface. Every refusal is a
    `SandboxError` whose text tells the model what to do instead.
    """

    @property
    @abstractmethod
    def refusal(self) -> str | None:
        """Why commands cannot run here, with the fix; None when they can."""

    @abstractmethod
    async def execute_command(
        self, command: str, *, timeout: float | None = None, on_output: OutputListener | None = None
    ) -> CommandResult:
        """Run `command` in a shell; the thread's working directory and exports carry over."""

    @abstractmethod
    async def read_file(self, path: str) -> str:
        """Return the text of a file."""

    @abstractmethod
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        """Write or append text, making parent folders as needed."""

    @abstractmethod
    async def list_dir(self, path: str, *, max_depth: int = 2) -> list[str]:
        """Return entries below `path`, folders with a trailing slash, sorted."""

    @abstractmethod
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        """Return matching paths and whether more were left out."""

    @abstractmethod
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
        """Return matching lines and whether more were left out."""

    @abstractmethod
    async def update_file(self, path: str, content: bytes) -> None:
        """Replace a file's bytes."""

    @abstractmethod
    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Return a file's bytes; one larger than `max_bytes` is refused without reading it."""

    async def file_version(self, path: str) -> str | None:
        """Return what tells the file's content from any other; None when there is no such file."""
        try:
            content = await self.download_file(path)
        except SandboxError:
            return None
        return await asyncio.to_thread(content_version, content)

    def editing(self, path: str) -> AbstractAsyncContextManager[None]:
        """Keep other writers away from `path` for the length of a block, such as a read and a write."""
        return self._file_locks.hold(path)

    @cached_property
    def _file_locks(self) -> FileLocks:
        return FileLocks()


def content_version(content: bytes) -> str:
    """Return a short hash: it tells versions of a file apart, nothing more."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


class SandboxProvider(ABC):
    """Lends sandboxes to runs."""

    tier: ClassVar[str] = "custom"
    """What operators and `/health` call this kind of sandbox."""

    @abstractmethod
    def lend(self, folders: ThreadFolders) -> AbstractAsyncContextManager[Sandbox]:
        """Lend the thread's sandbox for the length of a block."""

    async def self_test(self) -> SelfTest:
        """Tell whether commands can run here, and how well they are kept in."""
        return SelfTest(ok=True)

    @property
    def last_test(self) -> SelfTest | None:
        """The newest self-test, where the provider makes them by itself; else None."""
        return None

    @abstractmethod
    async def aclose(self) -> None:
        """Stop everything that is still running."""
