"""Limits how many tasks run at once, by process, user and run, and shares the places out fairly."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

BREATH_SECONDS = 0.02
BREATHS = 10


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks for a place, and how many places its run and its user may have at once."""

    run: str
    user: str = ""
    per_run: int | None = None
    per_user: int | None = None


class Place:
    """A place at the gate; whoever holds it may lend it to tasks of its own."""

    def __init__(self, gate: "FairGate", holder: Holder) -> None:
        self._gate = gate
        self._holder = holder
        self._borrowers = 0
        self.is_held = True

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Give the place up while tasks of the holder work: it waits for them, and they may need it."""
        self._borrowers += 1
        if self._borrowers == 1:
            self.give_back()
        try:
            yield
        except BaseException:
            self._borrowers -= 1  # a holder that is being stopped does not queue again first
            raise
        self._borrowers -= 1
        if self._borrowers == 0:
            await self._gate.take(self._holder)
            self.is_held = True

    def give_back(self) -> None:
        """Let others have the place, unless it was given up before."""
        if self.is_held:
            self.is_held = False
            self._gate.give_back(self._holder)


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    holder: Holder
    came: asyncio.Future[None]


class FairGate:
    """`limit` places; those who wait get them in turn by user and by run, so that none starves another."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._runs: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._waiting: OrderedDict[str, OrderedDict[str, deque[_Turn]]] = OrderedDict()
        self._entering: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many tasks wait for a place."""
        return sum(len(line) for runs in self._waiting.values() for line in runs.values())

    async def let_others_begin(self, holder: Holder) -> None:
        """Wait a moment while tasks of the holder's run are in line.

        Who asked for many tasks goes on when all have ended: what follows the end of one can wait, while a
        model could be at work for those in line.
        """
        await asyncio.sleep(0)  # whoever was given a place a moment ago is on its way in now
        for _ in range(BREATHS):
            is_entering = self._entering is not None and not self._entering.done()
            if not is_entering and holder.run not in self._waiting.get(holder.user, ()):
                return
            await asyncio.sleep(BREATH_SECONDS)

    @asynccontextmanager
    async def place(self, holder: Holder) -> AsyncIterator[Place]:
        """Hold a place for the length of a block."""
        await self.take(holder)
        place = Place(self, holder)
        try:
            await self._enter()
            yield place
        finally:
            place.give_back()

    async def _enter(self) -> None:
        """Begin after the one before has sent its first request.

        Many that begin at once would each do a step of their start in turn, and all requests would leave
        at the end; one after the other, the first model thinks while the last task still gets ready.
        """
        loop = asyncio.get_running_loop()
        before, mine = self._entering, loop.create_future()
        self._entering = mine
        try:
            if before is not None and before.get_loop() is loop and not before.done():
                await before
        finally:
            loop.call_soon(_let_by, mine)

    async def take(self, holder: Holder) -> None:
        """Wait for a place."""
        # Whoever waits while places are free is held back by a limit of its own.
        if self._admits(holder):
            self._hold(holder)
            return
        turn = _Turn(holder, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(holder.user, OrderedDict()).setdefault(holder.run, deque()).append(turn)
        try:
            await turn.came
        except asyncio.CancelledError:
            if turn.came.done() and not turn.came.cancelled():
                self.give_back(holder)  # the place came in the same moment
            else:
                self._leave(turn)
            raise

    def give_back(self, holder: Holder) -> None:
        """Free a place and hand out what is free to those whose turn it is."""
        self._free += 1
        _count_down(self._runs, holder.run)
        _count_down(self._users, holder.user)
        while (turn := next(self._admissible(), None)) is not None:
            self._leave(turn)
            if turn.holder.run in self._waiting.get(turn.holder.user, ()):
                self._waiting[turn.holder.user].move_to_end(turn.holder.run)
            if turn.holder.user in self._waiting:
                self._waiting.move_to_end(turn.holder.user)
            if not turn.came.done():
                self._hold(turn.holder)
                turn.came.set_result(None)

    def _admissible(self) -> Iterator[_Turn]:
        """Yield the first in each line that may go, in the order of turns."""
        if self._free > 0:
            for runs in self._waiting.values():
                for line in runs.values():
                    if self._admits(line[0].holder):
                        yield line[0]

    def _admits(self, holder: Holder) -> bool:
        return (
            self._free > 0
            and (holder.per_run is None or self._runs[holder.run] < holder.per_run)
            and (holder.per_user is None or self._users[holder.user] < holder.per_user)
        )

    def _hold(self, holder: Holder) -> None:
        self._free -= 1
        self._runs[holder.run] += 1
        self._users[holder.user] += 1

    def _leave(self, turn: _Turn) -> None:
        runs = self._waiting.get(turn.holder.user, OrderedDict())
        line = runs.get(turn.holder.run)
        if line is None or turn not in line:
            return
        line.remove(turn)
        if not line:
            del runs[turn.holder.run]
        if not runs:
            del self._waiting[turn.holder.user]


def _let_by(entering: asyncio.Future[None]) -> None:
    if not entering.done():
        entering.set_result(None)


def _count_down(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
