"""FairSlots assigns its slots fairly and loses none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deerflow.subagents.slots import FairSlots, SlotOwner, TaskSlot


@asynccontextmanager
async def held(slots: FairSlots, owner: SlotOwner) -> AsyncIterator[TaskSlot]:
    async with slots.slot(owner) as slot:
        await slot.acquire()
        yield slot


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_run_at_once() -> None:
    slots = FairSlots(3)
    running = most = 0

    async def work(number: int) -> None:
        nonlocal running, most
        async with held(slots, SlotOwner(f"run {number % 4}")):
            running += 1
            most = max(most, running)
            await settle()
            running -= 1

    await asyncio.gather(*(work(n) for n in range(40)))

    assert (most, running, slots.waiting) == (3, 0, 0)


def starter(slots: FairSlots, order: list[str]) -> Callable[[str], "asyncio.Task[None]"]:
    async def hold(run: str) -> None:
        async with held(slots, SlotOwner(run)):
            order.append(run)

    return lambda run: asyncio.create_task(hold(run))


async def test_tasks_of_one_run_are_served_in_order_of_arrival() -> None:
    slots = FairSlots(1)
    order: list[int] = []

    async def work(number: int) -> None:
        async with held(slots, SlotOwner("run")):
            order.append(number)
            await settle()

    await asyncio.gather(*(work(number) for number in range(6)))

    assert order == list(range(6))


async def test_a_wide_run_does_not_starve_a_narrow_one() -> None:
    slots = FairSlots(1)
    order: list[str] = []
    start = starter(slots, order)
    async with held(slots, SlotOwner("first")):
        tasks = [start("wide") for _ in range(5)]
        await settle()
        tasks += [start("narrow"), start("narrow")]
        await settle()

    await asyncio.gather(*tasks)

    assert order == ["wide", "narrow", "wide", "narrow", "wide", "wide", "wide"]


async def test_a_cancelled_request_leaves_the_queue_and_keeps_no_slot() -> None:
    slots = FairSlots(1)
    order: list[str] = []
    start = starter(slots, order)
    async with held(slots, SlotOwner("first")):
        gone, stays = start("a"), start("b")
        await settle()
        gone.cancel()
        await settle()
        assert slots.waiting == 1
        also_gone = start("c")
        await settle()

    also_gone.cancel()
    await asyncio.gather(stays, also_gone, return_exceptions=True)
    async with asyncio.timeout(60), held(slots, SlotOwner("last")):
        assert "b" in order


async def test_a_slot_granted_together_with_the_cancellation_goes_to_the_next() -> None:
    slots = FairSlots(1)
    order: list[str] = []
    start = starter(slots, order)
    async with held(slots, SlotOwner("first")):
        loser, winner = start("a"), start("b")
        await settle()
    loser.cancel()  # its slot was granted, but it has not run yet

    await asyncio.gather(loser, winner, return_exceptions=True)

    assert order == ["b"]


async def test_a_task_cancelled_before_it_runs_delays_no_other() -> None:
    slots = FairSlots(3)
    started: list[str] = []

    async def work(name: str) -> None:
        async with held(slots, SlotOwner("run")):
            started.append(name)

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert started == ["a", "c"]


async def test_a_run_and_a_user_keep_to_their_own_limits_while_slots_are_free() -> None:
    slots = FairSlots(10)
    running: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    most = dict(running)

    async def work(run: str, user: str, per_run: int | None, per_user: int | None) -> None:
        async with held(slots, SlotOwner(run, user, per_run, per_user)):
            running[run] += 1
            most[run] = max(most[run], running[run])
            most[user] = max(most.get(user, 0), running["b"] + running["c"] if user == "u2" else running["a"])
            await settle()
            running[run] -= 1

    jobs = [work("a", "u1", 2, None) for _ in range(8)]
    jobs += [work(run, "u2", None, 3) for run in ("b", "c") for _ in range(8)]
    async with asyncio.timeout(60):
        await asyncio.gather(*jobs)

    assert (most["a"], most["u2"]) == (2, 3)
    assert slots.waiting == 0


async def test_users_take_turns_before_their_runs_do() -> None:
    slots = FairSlots(1)
    order: list[str] = []

    async def hold(run: str, user: str) -> None:
        async with held(slots, SlotOwner(run, user)):
            order.append(run)

    async with held(slots, SlotOwner("first")):
        tasks = [asyncio.create_task(hold(run, "many")) for run in ("m1", "m2", "m3")]
        await settle()
        tasks += [asyncio.create_task(hold("o1", "one"))]
        await settle()
    await asyncio.gather(*tasks)

    assert order == ["m1", "o1", "m2", "m3"]


async def test_a_slot_released_for_children_is_acquired_again_before_new_tasks_of_the_run() -> None:
    slots = FairSlots(1)
    order: list[str] = []

    async def child(number: int) -> None:
        async with held(slots, SlotOwner("r")):
            order.append(f"child {number}")

    async with asyncio.timeout(60), held(slots, SlotOwner("r")) as slot:
        async with slot.released(), asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(child(number))
        order.append("parent")
        waiting = asyncio.create_task(child(2))
        await settle()
        assert not waiting.done()
    await waiting

    assert order == ["child 0", "child 1", "parent", "child 2"]


async def test_a_task_cancelled_while_its_slot_is_released_does_not_free_it_twice() -> None:
    slots = FairSlots(1)

    async def parent() -> None:
        async with held(slots, SlotOwner("r")) as slot, slot.released():
            await asyncio.Event().wait()

    job = asyncio.create_task(parent())
    await settle()
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)

    async with asyncio.timeout(60), held(slots, SlotOwner("x")):
        second = asyncio.create_task(TaskSlot(slots, SlotOwner("y")).acquire())
        await settle()
        assert not second.done()
        second.cancel()


async def test_a_slot_released_again_while_it_is_queued_for_is_acquired_all_the_same() -> None:
    slots = FairSlots(1)
    may_end, has_slot = asyncio.Event(), asyncio.Event()

    async def first(slot: TaskSlot) -> None:
        async with slot.released():
            other = asyncio.create_task(in_between())
            await has_slot.wait()
        await other

    async def in_between() -> None:
        async with held(slots, SlotOwner("other")):
            has_slot.set()
            await may_end.wait()

    async def second(slot: TaskSlot) -> None:
        async with slot.released():
            may_end.set()
            async with held(slots, SlotOwner("r")):
                pass

    async with asyncio.timeout(60), held(slots, SlotOwner("r")) as slot:
        job = asyncio.create_task(first(slot))
        await has_slot.wait()
        await settle()
        await asyncio.gather(job, second(slot))
        await slot.acquire()
        assert slot.is_held

    assert slots.waiting == 0
