"""The sandbox interface, and the provider interface through which runs acquire sandboxes."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxError

OutputListener = Callable[[str], None]
"""Callback that receives each chunk of output while a command runs."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command."""

    exit_code: int
    output: str
    """Standard output and error, interleaved as they arrived, truncated in the middle when too long."""


@dataclass(frozen=True, slots=True)
class Match:
    """One line that matched a search."""

    path: str
    line: int
    text: str


class Sandbox(ABC):
    """Runs one thread's commands and accesses its files; starts no process before the first command.

    All paths in this interface are virtual (`/mnt/user-data/workspace/…`). Every refusal is a
    `SandboxError` whose message says what the model can do instead.
    """

    @property
    @abstractmethod
    def refusal(self) -> str | None:
        """Why commands cannot run in this sandbox, with the fix; None when they can."""

    def prepare(self) -> None:  # noqa: B027 - only sandboxes with folders on this host have work to do
        """Create the thread's folders, as the first command or file operation does too."""

    @abstractmethod
    async def execute_command(
        self,
        command: str,
        *,
        timeout: float | None = None,
        on_output: OutputListener | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run `command` in a shell; the working directory and exports persist between a thread's commands.

        Args:
            environment: Variables of this command only: they do not persist, and appear on no command line.
        """

    @abstractmethod
    async def read_file(self, path: str) -> str:
        """Return a file's content as text."""

    @abstractmethod
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        """Write or append text; create missing parent folders."""

    @abstractmethod
    async def list_dir(self, path: str, *, max_depth: int = 2) -> list[str]:
        """Return the sorted entries below `path`; folders have a trailing slash."""

    @abstractmethod
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        """Return matching paths, and whether the results were truncated."""

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
        """Return matching lines, and whether the results were truncated."""

    @abstractmethod
    async def update_file(self, path: str, content: bytes) -> None:
        """Replace a file's content."""

    @abstractmethod
    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Return a file's bytes; refuse a file larger than `max_bytes` without reading it."""

    async def file_version(self, path: str) -> str | None:
        """Return an identifier of the file's current content; None when the file does not exist."""
        try:
            content = await self.download_file(path)
        except SandboxError:
            return None
        return await asyncio.to_thread(content_version, content)

    def editing(self, path: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock on `path`, so that no other writer comes between a read and a write."""
        return self._file_locks.hold(path)

    @cached_property
    def _file_locks(self) -> "FileLocks":
        return FileLocks()


def content_version(content: bytes) -> str:
    """Return a short hash that distinguishes versions of a file; it has no other purpose."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


class FileLocks:
    """Locks by name, reentrant for the asyncio task that holds one and for tasks it starts meanwhile."""

    def __init__(self) -> None:
        self._locks: dict[str, _FileLock] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        entry = self._locks.setdefault(name, _FileLock())
        current = _LOCK_OWNER.get(None)
        if entry.owner is not None and entry.owner is current:
            yield
            return
        entry.users += 1
        try:
            async with entry.lock:
                entry.owner = current or object()
                token = _LOCK_OWNER.set(entry.owner)
                try:
                    yield
                finally:
                    _LOCK_OWNER.reset(token)
                    entry.owner = None
        finally:
            entry.users -= 1
            if not entry.users:
                self._locks.pop(name, None)


@dataclass(slots=True)
class _FileLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    owner: object | None = None
    users: int = 0


_LOCK_OWNER: ContextVar[object] = ContextVar("owner of file locks")


@dataclass(frozen=True, slots=True)
class Probe:
    """Result of one check of a self-test."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Whether commands may run; otherwise `reason` says why not and `fix` what the operator can do."""

    ok: bool
    probes: tuple[Probe, ...] = ()
    reason: str | None = None
    fix: str | None = None

    @property
    def refusal(self) -> str | None:
        """The refusal message for the model and the user; None when the test passed."""
        if self.ok:
            return None
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"bash is off: {self.reason}.{fix} The file tools go on working."


class SandboxProvider(ABC):
    """Provides sandboxes to runs."""

    tier: ClassVar[str] = "custom"
    """Name of this kind of sandbox, for operators and `/health`."""

    @abstractmethod
    def acquire(self, folders: ThreadFolders) -> AbstractAsyncContextManager[Sandbox]:
        """Return a context manager that acquires the thread's sandbox and releases it on exit."""

    async def self_test(self) -> SelfTest:
        """Test whether commands can run on this system and whether the isolation holds."""
        return SelfTest(ok=True)

    @property
    def last_test(self) -> SelfTest | None:
        """The most recent self-test of a provider that runs them on its own; else None."""
        return None

    @abstractmethod
    async def aclose(self) -> None:
        """Stop everything that still runs."""
