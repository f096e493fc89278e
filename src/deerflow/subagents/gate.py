"""Limit how many tasks run at once, by process, user and run, and assign the slots fairly."""

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
    """The run and user that request a slot, and how many slots each may hold at once."""

    run: str
    user: str = ""
    per_run: int | None = None
    per_user: int | None = None


class Place:
    """A slot, held or requested; a parent task releases it while its own tasks run."""

    def __init__(self, gate: "FairGate", holder: Holder) -> None:
        self._gate = gate
        self.holder = holder
        self._borrowers = 0
        self.is_held = False
        self.was_held = False
        self.came: asyncio.Future[None] | None = None
        """Resolved when a queued slot is assigned."""

    async def get_ready(self) -> None:
        """Wait for this task's turn to prepare its start.

        Tasks with a slot prepare in order of arrival. Queued ones prepare while none of those starts, so that
        little is left to do when they get a slot.
        """
        if not self.is_held:
            await self._gate.preparing.turn(after=self._gate.beginning, unless=self.came)
        if self.is_held:
            await self._gate.beginning.turn()

    async def take(self) -> None:
        """Wait for the slot; return at once when it is held."""
        if self.is_held:
            return
        self._gate.line_up(self)
        if self.came is not None:
            await self.came

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Release the slot for the length of a block: the holder waits for its tasks, which need slots."""
        self._borrowers += 1
        if self._borrowers == 1:
            self.give_back()
        try:
            yield
        except BaseException:
            self._borrowers -= 1  # a holder that is being cancelled does not queue again
            raise
        self._borrowers -= 1
        if self._borrowers == 0:
            await self.take()

    def give_back(self) -> None:
        """Release the slot, or leave the queue."""
        if self.is_held:
            self.is_held = False
            self._gate.give_back(self.holder)
        else:
            self._gate.leave(self)
            if self.came is not None and not self.came.done():
                self.came.set_result(None)  # wake the waiter: the slot is lent again and taken afterwards


class FairGate:
    """`limit` slots, assigned to waiting tasks round robin over users and over runs, so that none starves."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._runs: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._begun = Moments()
        """By run: signalled when none of its tasks is queued any more."""
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Place]]] = OrderedDict()
        self.beginning = Procession()
        self.preparing = Procession()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a slot."""
        return sum(len(line) for runs in self._waiting.values() for line in runs.values())

    async def let_others_begin(self, holder: Holder) -> None:
        """Wait briefly while tasks of the holder's run are queued.

        The caller of many tasks continues when all of them have ended. So the work after the end of one can
        wait, while the queued ones could already wait for their models.
        """
        if holder.run in self._waiting.get(holder.user, ()):
            await self._begun.wait(holder.run, seconds=MOMENT_SECONDS)
        else:
            await asyncio.sleep(0)  # let the task that was just given the slot start first

    @asynccontextmanager
    async def line(self, holder: Holder) -> AsyncIterator[Place]:
        """Queue for a slot, or hold it, for the length of a block."""
        place = Place(self, holder)
        self.line_up(place)
        try:
            yield place
        finally:
            place.give_back()

    def line_up(self, place: Place) -> None:
        """Assign a free slot, or queue the request."""
        if place.came is not None and not place.came.done():
            return
        # No queued request is overtaken: those that wait while slots are free are at a limit of their own.
        if self._admits(place.holder):
            self._hold(place)
            return
        place.came = asyncio.get_running_loop().create_future()
        user, run = place.holder.user, place.holder.run
        line = self._waiting.setdefault(user, OrderedDict()).setdefault(run, deque())
        if place.was_held:  # already started: goes before tasks of its run that have not
            line.appendleft(place)
        else:
            line.append(place)

    def give_back(self, holder: Holder) -> None:
        """Release a slot and assign the free slots to the next requests."""
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
        """Remove a request from the queue."""
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
        """Yield the first request of each run that is within its limits, in round-robin order."""
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
