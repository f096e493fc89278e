"""One lock per file, so that a read-then-write of one task is not overtaken by another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

_HOLDER: ContextVar[object] = ContextVar("holder of file locks")


class FileLocks:
    """Hands out locks by name; the task that holds one may take it again, and so may tasks it starts then."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Hold `name` for the length of a block."""
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
