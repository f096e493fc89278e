"""Limits how many tasks run at once, by process, user and run, and shares the places out fairly."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from deerflow.subagents.moments import Moments
from deerflow.subagents.procession import Procession

MOMENT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks for a place, and how many places its run and its user may have at once."""

    run: str
    user: str = ""
    per_run: int | None = None
    per_user: int | None = None


class Place:
    """A place at the gate, or the wish for one; whoever holds it may lend it to tasks of its own."""

    def __init__(self, gate: "FairGate", holder: Holder) -> None:
        self._gate = gate
        self.holder = holder
        self._borrowers = 0
        self.is_held = False
        self.was_held = False
        self.came: asyncio.Future[None] | None = None
        """While it is waited for: done when it is there."""

    async def get_ready(self) -> None:
        """Wait until it is time to prepare: at once for a holder, in a quiet moment for one in line.

        Those in line prepare while nobody else begins, so that little is left to do when their place comes.
        """
        if not self.is_held:
            await self._gate.preparing.turn(after=self._gate.beginning, unless=self.came)
        if self.is_held:
            await self._gate.beginning.turn()

    async def take(self) -> None:
        """Wait for the place, unless it is held already."""
        if self.is_held:
            return
        self._gate.line_up(self)
        if self.came is not None:
            await self.came

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
            await self.take()

    def give_back(self) -> None:
        """Let others have the place, or leave the line."""
        if self.is_held:
            self.is_held = False
            self._gate.give_back(self.holder)
        else:
            self._gate.leave(self)
            if self.came is not None and not self.came.done():
                self.came.set_result(None)  # who waits for it goes on: it is lent again, and taken after that


class FairGate:
    """`limit` places; those who wait get them in turn by user and by run, so that none starves another."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._runs: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._begun = Moments()
        """By run: none of its tasks is in line any more."""
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Place]]] = OrderedDict()
        self.beginning = Procession()
        self.preparing = Procession()

    @property
    def waiting(self) -> int:
        """How many tasks wait for a place."""
        return sum(len(line) for runs in self._waiting.values() for line in runs.values())

    async def let_others_begin(self, holder: Holder) -> None:
        """Wait a moment while tasks of the holder's run are in line.

        Who asked for many tasks goes on when all have ended: what follows the end of one can wait, while a
        model could be at work for those in line.
        """
        if holder.run in self._waiting.get(holder.user, ()):
            await self._begun.wait(holder.run, seconds=MOMENT_SECONDS)
        else:
            await asyncio.sleep(0)  # whoever was given a place a moment ago is on its way in now

    @asynccontextmanager
    async def line(self, holder: Holder) -> AsyncIterator[Place]:
        """Stand in line for a place, or have it, for the length of a block."""
        place = Place(self, holder)
        self.line_up(place)
        try:
            yield place
        finally:
            place.give_back()

    def line_up(self, place: Place) -> None:
        """Give a place that is free, or let it be waited for."""
        if place.came is not None and not place.came.done():
            return
        # Whoever waits while places are free is held back by a limit of its own.
        if self._admits(place.holder):
            self._hold(place)
            return
        place.came = asyncio.get_running_loop().create_future()
        user, run = place.holder.user, place.holder.run
        line = self._waiting.setdefault(user, OrderedDict()).setdefault(run, deque())
        if place.was_held:  # its work is begun: it goes before those of its run that have not
            line.appendleft(place)
        else:
            line.append(place)

    def give_back(self, holder: Holder) -> None:
        """Free a place and hand out what is free to those whose turn it is."""
        self._free += 1
        _count_down(self._runs, holder.run)
        _count_down(self._users, holder.user)
        while (place := next(self._admissible(), None)) is not None:
            self.leave(place)
            user, run = place.holder.user, place.holder.run
            if run in self._waiting.get(user, ()):
                self._waiting[user].move_to_end(run)
            if user in self._waiting:
                self._waiting.move_to_end(user)
            if place.came is not None and not place.came.done():
                self._hold(place)
                place.came.set_result(None)

    def leave(self, place: Place) -> None:
        """Wait for the place no longer."""
        runs = self._waiting.get(place.holder.user, OrderedDict())
        line = runs.get(place.holder.run)
        if line is None or place not in line:
            return
        line.remove(place)
        if not line:
            del runs[place.holder.run]
            self._begun.happened(place.holder.run)
        if not runs:
            del self._waiting[place.holder.user]

    def _admissible(self) -> Iterator[Place]:
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

    def _hold(self, place: Place) -> None:
        place.is_held = place.was_held = True
        self._free -= 1
        self._runs[place.holder.run] += 1
        self._users[place.holder.user] += 1


def _count_down(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
