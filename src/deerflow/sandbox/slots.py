"""Limits concurrent commands per server and per thread, and schedules waiting threads round robin."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Self

from deerflow.config import SandboxSettings


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
        """Create slots with the limits of the settings."""
        return cls(limit=settings.max_commands, per_thread=settings.limits.max_commands)

    @asynccontextmanager
    async def hold(self, thread: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the block exits."""
        await self._take(thread)
        try:
            # Starting a process blocks the event loop for milliseconds: at most one start per loop iteration.
            async with self._starting:
                await asyncio.sleep(0)
            yield
        finally:
            self._give_back(thread)

    async def _take(self, thread: Hashable) -> None:
        if thread not in self._waiting and self._admits(thread):
            self._count(thread)
            return
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(thread, deque()).append(came)
        try:
            await came
        except asyncio.CancelledError:
            if came.done() and not came.cancelled():
                self._give_back(thread)  # the slot was granted just before the cancellation
            else:
                self._leave(thread, came)
            raise

    def _give_back(self, thread: Hashable) -> None:
        self._free += 1
        self._running[thread] -= 1
        if not self._running[thread]:
            del self._running[thread]
        while (following := next(filter(self._admits, self._waiting), None)) is not None:
            came = self._waiting[following][0]
            self._leave(following, came)
            if following in self._waiting:
                self._waiting.move_to_end(following)
            self._count(following)
            came.set_result(None)

    def _leave(self, thread: Hashable, came: "asyncio.Future[None]") -> None:
        line = self._waiting[thread]
        line.remove(came)
        if not line:
            del self._waiting[thread]

    def _admits(self, thread: Hashable) -> bool:
        return self._free > 0 and self._running[thread] < self._per_thread

    def _count(self, thread: Hashable) -> None:
        self._free -= 1
        self._running[thread] += 1
