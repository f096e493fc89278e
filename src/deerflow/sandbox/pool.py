"""Base provider that keeps one sandbox per thread: those in use, and a limited number of idle ones."""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox.base import Sandbox, SandboxProvider
from deerflow.sandbox.shell import check_environment
from deerflow.sandbox.slots import CommandSlots

MAX_IDLE = 1024
"""Maximum number of idle sandboxes, and so of threads whose working directory and exports are kept."""


class ThreadSandboxProvider(SandboxProvider):
    """Provides sandboxes that are cheap while idle: a few objects, no process."""

    def __init__(self, settings: SandboxSettings, *, skills_root: Path | None = None) -> None:
        check_environment(settings.environment)
        self._settings = settings
        self._skills_root = skills_root
        self.commands = CommandSlots.from_settings(settings)
        self.searches = CommandSlots.from_settings(settings)
        """Separate from `commands`: searches are short, so they do not wait for long commands."""
        self._sandboxes: dict[Path, Sandbox] = {}
        self._users: dict[Path, int] = {}
        self._idle: OrderedDict[Path, None] = OrderedDict()
        """Sandboxes not in use, least recently used first."""

    @abstractmethod
    def make(self, folders: ThreadFolders) -> Sandbox:
        """Create the sandbox of one thread, whose folders exist."""

    def is_fit(self, folders: ThreadFolders) -> bool:
        """Return whether an existing sandbox is still valid; not after the thread was recreated."""
        return folders.workspace.is_dir()

    @override
    def lend(self, folders: ThreadFolders) -> AbstractAsyncContextManager[Sandbox]:
        return self._lend(folders)

    @asynccontextmanager
    async def _lend(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        sandbox = self.acquire(folders)
        try:
            yield sandbox
        finally:
            self.release(folders)

    def acquire(self, folders: ThreadFolders) -> Sandbox:
        """Return the thread's sandbox, creating it when needed; pair each call with `release`."""
        sandbox = self._sandboxes.get(folders.root)
        if sandbox is None or not self.is_fit(folders):
            folders.create()
            sandbox = self._sandboxes[folders.root] = self.make(folders)
        self._idle.pop(folders.root, None)
        self._users[folders.root] = self._users.get(folders.root, 0) + 1
        return sandbox

    def get(self, folders: ThreadFolders) -> Sandbox | None:
        """Return the thread's sandbox if it exists."""
        return self._sandboxes.get(folders.root)

    def release(self, folders: ThreadFolders) -> None:
        """Release a sandbox; beyond `MAX_IDLE` idle ones, drop the least recently used."""
        left = self._users.pop(folders.root, 1) - 1
        if left:
            self._users[folders.root] = left
        elif folders.root in self._sandboxes:
            self._idle[folders.root] = None
        while len(self._idle) > MAX_IDLE:
            del self._sandboxes[self._idle.popitem(last=False)[0]]

    def reset(self) -> None:
        """Drop all idle sandboxes; the next run gets a new one."""
        while self._idle:
            del self._sandboxes[self._idle.popitem()[0]]

    @override
    async def aclose(self) -> None:
        self._sandboxes.clear()
        self._users.clear()
        self._idle.clear()
