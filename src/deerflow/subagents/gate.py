"""Limits how many tasks run at once in this process, and shares the places out fairly."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairGate:
    """`limit` places; those who wait get them in turn by owner, so that one wide run starves nobody."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many tasks wait for a place."""
        return sum(len(line) for line in self._waiting.values())

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """Hold a place for the length of a block."""
        await self._take(owner)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, owner: str) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # the place came in the same moment
            else:
                self._leave(owner, turn)
            raise

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        line = self._waiting.get(owner)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[owner]

    def _give_back(self) -> None:
        """Hand the place to the owner who has waited longest for a turn."""
        while self._waiting:
            owner, line = next(iter(self._waiting.items()))
            turn = line.popleft()
            if line:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
