"""One lock per file, so that a read-then-write of one task is not overtaken by another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FileLocks:
    """Hands out locks by name; the task that holds one may take it again."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Hold `name` for the length of a block."""
        held = self._held.setdefault(name, _Held())
        me = asyncio.current_task()
        if held.owner is not None and held.owner is me:
            yield
            return
        held.users += 1
        try:
            async with held.lock:
                held.owner = me
                try:
                    yield
                finally:
                    held.owner = None
        finally:
            held.users -= 1
            if not held.users:
                self._held.pop(name, None)


class _Held:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.owner: asyncio.Task[object] | None = None
        self.users = 0
