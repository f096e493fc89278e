"""Where a sub-agent waits for its slot: how many run at once, and which one is next.

Slots are limited by process, by user and by run. Queued tasks are served first come, first served within a
run, and round robin over the users and over each user's runs, so that no wide run starves another.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotOwner:
    """The run and user that a slot counts for, and how many slots each may hold at once."""

    run: str
    user: str = ""
    per_run: int | None = None
    per_user: int | None = None


class TaskSlot:
    """The slot of one task: held, queued for, or released."""

    def __init__(self, slots: "FairSlots", owner: SlotOwner) -> None:
        self._slots = slots
        self._released_for = 0
        self.owner = owner
        self.is_held = False
        self.was_held = False
        self.granted: asyncio.Future[None] | None = None
        """Resolved when a queued request gets its slot or is withdrawn."""

    async def acquire(self) -> None:
        """Wait for the slot; return at once when it is held."""
        if not self.is_held:
            self._slots.request(self)
        if self.granted is not None:
            await self.granted

    def release(self) -> None:
        """Release the slot, or leave the queue."""
        if self.is_held:
            self.is_held = False
            self._slots.free(self.owner)
        else:
            self._slots.withdraw(self)
            if self.granted is not None and not self.granted.done():
                self.granted.set_result(None)  # released again while it was queued: acquired afterwards

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Release the slot for the length of a block: the task waits for its own tasks, which need slots."""
        self._released_for += 1
        if self._released_for == 1:
            self.release()
        try:
            yield
        except BaseException:
            self._released_for -= 1  # a task that is being cancelled does not queue again
            raise
        self._released_for -= 1
        if self._released_for == 0:
            await self.acquire()


class FairSlots:
    """The slots of all tasks in this process."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._held_by_run: Counter[str] = Counter()
        self._held_by_user: Counter[str] = Counter()
        self._queues: OrderedDict[str, OrderedDict[str, deque[TaskSlot]]] = OrderedDict()
        """Queued requests by user and run; the first user, and the first run of each, is next."""

    @property
    def waiting(self) -> int:
        """Number of queued requests."""
        return sum(len(queue) for runs in self._queues.values() for queue in runs.values())

    @asynccontextmanager
    async def slot(self, owner: SlotOwner) -> AsyncIterator[TaskSlot]:
        """Create a slot for `owner` to acquire; it is released at the end of the block."""
        slot = TaskSlot(self, owner)
        try:
            yield slot
        finally:
            slot.release()

    def request(self, slot: TaskSlot) -> None:
        """Grant a free slot, or queue the request; a task that held its slot before goes first in its run."""
        if slot.granted is not None and not slot.granted.done():
            return
        # No queued request is overtaken: those that wait while slots are free are at a limit of their own.
        if self._is_within_limits(slot.owner):
            slot.granted = None
            self._hold(slot)
            return
        slot.granted = asyncio.get_running_loop().create_future()
        runs = self._queues.setdefault(slot.owner.user, OrderedDict())
        queue = runs.setdefault(slot.owner.run, deque())
        if slot.was_held:
            queue.appendleft(slot)
        else:
            queue.append(slot)

    def free(self, owner: SlotOwner) -> None:
        """Take back a slot and grant free slots to the next requests."""
        self._free += 1
        for held, key in ((self._held_by_run, owner.run), (self._held_by_user, owner.user)):
            held[key] -= 1
            if not held[key]:
                del held[key]
        while (slot := next(self._grantable(), None)) is not None:
            self.withdraw(slot)
            user, run = slot.owner.user, slot.owner.run
            if run in self._queues.get(user, ()):
                self._queues[user].move_to_end(run)
            if user in self._queues:
                self._queues.move_to_end(user)
            if slot.granted is not None and not slot.granted.done():  # else its task was just cancelled
                self._hold(slot)
                slot.granted.set_result(None)

    def withdraw(self, slot: TaskSlot) -> None:
        """Remove a request from the queue."""
        runs = self._queues.get(slot.owner.user, OrderedDict())
        queue = runs.get(slot.owner.run, deque())
        if slot not in queue:
            return
        queue.remove(slot)
        if not queue:
            del runs[slot.owner.run]
        if not runs:
            del self._queues[slot.owner.user]

    def _grantable(self) -> Iterator[TaskSlot]:
        """Yield the first request of each run that is within its limits, in round-robin order."""
        for runs in self._queues.values():
            for queue in runs.values():
                if self._is_within_limits(queue[0].owner):
                    yield queue[0]

    def _is_within_limits(self, owner: SlotOwner) -> bool:
        return (
            self._free > 0
            and (owner.per_run is None or self._held_by_run[owner.run] < owner.per_run)
            and (owner.per_user is None or self._held_by_user[owner.user] < owner.per_user)
        )

    def _hold(self, slot: TaskSlot) -> None:
        slot.is_held = slot.was_held = True
        self._free -= 1
        self._held_by_run[slot.owner.run] += 1
        self._held_by_user[slot.owner.user] += 1
