"""One asyncio lock per file, so that concurrent read-then-write edits do not interleave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

_HOLDER: ContextVar[object] = ContextVar("holder of file locks")


class FileLocks:
    """Locks by name, reentrant for the asyncio task that holds one and for tasks it starts meanwhile."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Hold the lock `name` until the block exits."""
        held = self._held.setdefault(name, _Held())
        me = _HOLDER.get(None)
        if held.owner is not None and held.owner is me:
            yield
            return
        held.users += 1
        try:
            async with held.lock:
                held.owner = me or object()
                before = _HOLDER.set(held.owner)
                try:
                    yield
                finally:
                    _HOLDER.reset(before)
                    held.owner = None
        finally:
            held.users -= 1
            if not held.users:
                self._held.pop(name, None)


class _Held:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.owner: object | None = None
        self.users = 0
