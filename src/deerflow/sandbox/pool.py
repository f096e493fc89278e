"""Base provider that keeps one sandbox per thread, and the limits on concurrent commands."""

import asyncio
from abc import abstractmethod
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox.base import Sandbox, SandboxProvider
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.paths import PathMapping, SkillMounts, no_skills
from deerflow.sandbox.shell import check_environment

MAX_IDLE = 1024
"""Maximum number of idle sandboxes, and so of threads whose working directory and exports are kept."""


class ThreadSandboxProvider(SandboxProvider):
    """Provides sandboxes that are cheap while idle: a few objects, no process."""

    def __init__(self, settings: SandboxSettings, *, skills: SkillMounts = no_skills) -> None:
        check_environment(settings.environment)
        self._settings = settings
        self._skills = skills
        self.commands = CommandSlots.from_settings(settings)
        self.searches = CommandSlots.from_settings(settings)
        """Separate from `commands`: searches are short, so they do not wait for long commands."""
        self._sandboxes: dict[Path, HostedSandbox] = {}
        self._mounted: dict[Path, Sequence[PathMapping]] = {}
        """The folders of skills that each sandbox was created with."""
        self._users: Counter[Path] = Counter()
        self._idle: OrderedDict[Path, None] = OrderedDict()
        """Sandboxes not in use, least recently used first."""

    @abstractmethod
    def create(self, folders: ThreadFolders, skills: Sequence[PathMapping]) -> HostedSandbox:
        """Create the sandbox of one thread with these folders of skills; its first use creates its own."""

    def is_valid(self, folders: ThreadFolders) -> bool:
        """Return whether an existing sandbox is still valid; not after the thread was recreated."""
        return folders.workspace.is_dir()

    @override
    @asynccontextmanager
    async def acquire(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        root = folders.root
        sandbox = self._sandboxes.get(root)
        skills = self._skills(folders)
        is_outdated = sandbox is not None and sandbox.is_prepared and not self.is_valid(folders)
        if sandbox is None or is_outdated or skills != self._mounted[root]:
            self._mounted[root] = skills
            sandbox = self._sandboxes[root] = self.create(folders, skills)
        if not sandbox.is_prepared and root.exists():
            sandbox.prepare()  # it has files already: their folders may be open to other users
        self._idle.pop(root, None)
        self._users[root] += 1
        try:
            yield sandbox
        finally:
            self._users[root] -= 1
            if not self._users[root]:
                del self._users[root]
                if root in self._sandboxes:  # not after `aclose`
                    self._idle[root] = None
            while len(self._idle) > MAX_IDLE:
                oldest = self._idle.popitem(last=False)[0]
                del self._sandboxes[oldest], self._mounted[oldest]

    @override
    async def aclose(self) -> None:
        self._sandboxes.clear()
        self._mounted.clear()
        self._idle.clear()


class CommandSlots:
    """A fixed number of command slots; waiting threads are served round robin, so none starves another."""

    def __init__(self, *, limit: int, per_thread: int) -> None:
        self._free = limit
        self._per_thread = per_thread
        self._running: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._starting = asyncio.Lock()

    @classmethod
    def from_settings(cls, settings: SandboxSettings) -> Self:
        return cls(limit=settings.max_commands, per_thread=settings.limits.max_commands)

    @asynccontextmanager
    async def hold(self, thread: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the block exits."""
        if thread not in self._waiting and self._is_free_for(thread):
            self._take(thread)
        else:
            await self._wait(thread)
        try:
            # Starting a process blocks the event loop for milliseconds: at most one start per loop iteration.
            async with self._starting:
                await asyncio.sleep(0)
            yield
        finally:
            self._release(thread)

    async def _wait(self, thread: Hashable) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(thread, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(thread)  # the slot was granted just before the cancellation
            else:
                self._dequeue(thread, granted)
            raise

    def _take(self, thread: Hashable) -> None:
        self._free -= 1
        self._running[thread] += 1

    def _release(self, thread: Hashable) -> None:
        self._free += 1
        self._running[thread] -= 1
        if not self._running[thread]:
            del self._running[thread]
        while (following := next(filter(self._is_free_for, self._waiting), None)) is not None:
            granted = self._waiting[following][0]
            self._dequeue(following, granted)
            if following in self._waiting:
                self._waiting.move_to_end(following)
            self._take(following)
            granted.set_result(None)

    def _dequeue(self, thread: Hashable, granted: "asyncio.Future[None]") -> None:
        queue = self._waiting[thread]
        queue.remove(granted)
        if not queue:
            del self._waiting[thread]

    def _is_free_for(self, thread: Hashable) -> bool:
        return self._free > 0 and self._running[thread] < self._per_thread
