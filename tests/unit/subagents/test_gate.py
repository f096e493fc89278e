"""The gate shares its places out fairly and loses none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deerflow.subagents.gate import FairGate, Holder, Place


@asynccontextmanager
async def held(gate: FairGate, holder: Holder) -> AsyncIterator[Place]:
    async with gate.line(holder) as place:
        await place.get_ready()
        await place.take()
        yield place


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_run_at_once() -> None:
    gate = FairGate(3)
    running = most = 0

    async def work(number: int) -> None:
        nonlocal running, most
        async with held(gate, Holder(f"run {number % 4}")):
            running += 1
            most = max(most, running)
            await settle()
            running -= 1

    await asyncio.gather(*(work(n) for n in range(40)))

    assert (most, running, gate.waiting) == (3, 0, 0)


def holder(gate: FairGate, order: list[str]) -> Callable[[str], "asyncio.Task[None]"]:
    async def hold(owner: str) -> None:
        async with held(gate, Holder(owner)):
            order.append(owner)

    return lambda owner: asyncio.create_task(hold(owner))


async def test_a_wide_run_does_not_starve_a_narrow_one() -> None:
    gate = FairGate(1)
    order: list[str] = []
    start = holder(gate, order)
    async with held(gate, Holder("first")):
        tasks = [start("wide") for _ in range(5)]
        await settle()
        tasks += [start("narrow"), start("narrow")]
        await settle()

    await asyncio.gather(*tasks)

    assert order == ["wide", "narrow", "wide", "narrow", "wide", "wide", "wide"]


async def test_those_who_leave_the_line_take_no_place_with_them() -> None:
    gate = FairGate(1)
    order: list[str] = []
    start = holder(gate, order)
    async with held(gate, Holder("first")):
        gone, stays = start("a"), start("b")
        await settle()
        gone.cancel()
        await settle()
        assert gate.waiting == 1
        also_gone = start("c")
        await settle()

    also_gone.cancel()
    await asyncio.gather(stays, also_gone, return_exceptions=True)
    async with asyncio.timeout(60), held(gate, Holder("last")):
        assert "b" in order


async def test_a_place_that_comes_with_the_cancellation_is_given_on() -> None:
    gate = FairGate(1)
    order: list[str] = []
    start = holder(gate, order)
    async with held(gate, Holder("first")):
        loser, winner = start("a"), start("b")
        await settle()
    loser.cancel()  # its turn has come, but it has not run yet

    await asyncio.gather(loser, winner, return_exceptions=True)

    assert order == ["b"]


async def test_a_run_and_a_user_keep_to_their_own_limits_while_places_are_free() -> None:
    gate = FairGate(10)
    running: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    most = dict(running)

    async def work(run: str, user: str, per_run: int | None, per_user: int | None) -> None:
        async with held(gate, Holder(run, user, per_run, per_user)):
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
    assert gate.waiting == 0


async def test_users_take_turns_before_their_runs_do() -> None:
    gate = FairGate(1)
    order: list[str] = []

    async def hold(run: str, user: str) -> None:
        async with held(gate, Holder(run, user)):
            order.append(run)

    async with held(gate, Holder("first")):
        tasks = [asyncio.create_task(hold(run, "many")) for run in ("m1", "m2", "m3")]
        await settle()
        tasks += [asyncio.create_task(hold("o1", "one"))]
        await settle()
    await asyncio.gather(*tasks)

    assert order == ["m1", "o1", "m2", "m3"]


async def test_a_place_is_lent_to_those_the_holder_waits_for_and_taken_again() -> None:
    gate = FairGate(1)
    order: list[str] = []

    async def child(number: int) -> None:
        async with held(gate, Holder("r")):
            order.append(f"child {number}")

    async with asyncio.timeout(60), held(gate, Holder("r")) as place:
        async with place.lent(), asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(child(number))
        order.append("parent")
        waiting = asyncio.create_task(child(2))
        await settle()
        assert not waiting.done()
    await waiting

    assert order == ["child 0", "child 1", "parent", "child 2"]


async def test_a_holder_that_is_stopped_while_its_place_is_lent_gives_nothing_back_twice() -> None:
    gate = FairGate(1)

    async def lender() -> None:
        async with held(gate, Holder("r")) as place, place.lent():
            await asyncio.Event().wait()

    job = asyncio.create_task(lender())
    await settle()
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)

    async with asyncio.timeout(60), held(gate, Holder("x")):
        second = asyncio.create_task(Place(gate, Holder("y")).take())
        await settle()
        assert not second.done()
        second.cancel()


async def test_a_place_that_is_lent_again_while_it_is_waited_for_comes_back_all_the_same() -> None:
    gate = FairGate(1)
    may_end, has_asked = asyncio.Event(), asyncio.Event()

    async def first(place: Place) -> None:
        async with place.lent():
            taking = asyncio.create_task(in_between())
            await has_asked.wait()
        await taking

    async def in_between() -> None:
        async with held(gate, Holder("other")):
            has_asked.set()
            await may_end.wait()

    async def second(place: Place) -> None:
        async with place.lent():
            may_end.set()
            async with held(gate, Holder("r")):
                pass

    async with asyncio.timeout(60), held(gate, Holder("r")) as place:
        job = asyncio.create_task(first(place))
        await has_asked.wait()
        await settle()
        await asyncio.gather(job, second(place))
        await place.take()
        assert place.is_held

    assert gate.waiting == 0


async def test_each_gets_a_turn_of_the_loop_before_the_next_begins() -> None:
    gate = FairGate(3)
    order: list[str] = []

    async def work(name: str) -> None:
        async with held(gate, Holder("run")):
            order.append(f"{name} begins")
            asyncio.get_running_loop().call_soon(order.append, f"{name} has asked")
            await settle()

    await asyncio.gather(*(work(name) for name in "abc"))

    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "has asked")]


async def test_one_that_is_cancelled_on_the_way_in_holds_nobody_up() -> None:
    gate = FairGate(3)
    begun: list[str] = []

    async def work(name: str) -> None:
        async with held(gate, Holder("run")):
            begun.append(name)

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert begun == ["a", "c"]


async def test_who_has_ended_lets_those_in_line_begin_first() -> None:
    gate = FairGate(1)
    order: list[str] = []

    async def work(name: str) -> None:
        async with held(gate, Holder("run")) as place:
            order.append(f"{name} begins")
            await settle()
            place.give_back()
            await gate.let_others_begin(Holder("run"))
            order.append(f"{name} is told of")

    await asyncio.gather(*(work(name) for name in "ab"))

    assert order[:2] == ["a begins", "b begins"]


async def test_those_in_line_get_ready_when_all_who_have_a_place_have_begun() -> None:
    gate = FairGate(2)
    order: list[str] = []
    all_are_ready = asyncio.Event()

    async def work(name: str) -> None:
        async with gate.line(Holder("run")) as place:
            await place.get_ready()
            order.append(f"{name} is ready")
            if name == "d":
                all_are_ready.set()
            await place.take()
            order.append(f"{name} begins")
            await all_are_ready.wait()

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(name) for name in "abcd"))

    assert order[:6] == ["a is ready", "a begins", "b is ready", "b begins", "c is ready", "d is ready"]
    assert sorted(order[6:]) == ["c begins", "d begins"]


async def test_a_place_that_comes_early_ends_the_wait_to_get_ready() -> None:
    gate = FairGate(1)
    order: list[str] = []

    async def work(name: str) -> None:
        async with gate.line(Holder(name)) as place:
            await place.get_ready()
            order.append(f"{name} is ready with{'' if place.is_held else 'out'} a place")
            await place.take()

    async with held(gate, Holder("first")) as place:
        many = [asyncio.create_task(work("many")) for _ in range(50)]
        one = asyncio.create_task(work("one"))
        await asyncio.sleep(0)
        place.give_back()  # to the first of many; the next is the only one of the other run
        await asyncio.gather(one)

    await asyncio.gather(*many)
    assert "one is ready with a place" in order[:10]


async def test_who_leaves_the_line_while_others_get_ready_holds_nobody_up() -> None:
    gate = FairGate(1)
    ready: list[str] = []

    async def work(name: str) -> None:
        async with gate.line(Holder("run")) as place:
            await place.get_ready()
            ready.append(name)
            await place.take()

    async with held(gate, Holder("first")):
        jobs = {name: asyncio.create_task(work(name)) for name in "abc"}
        await asyncio.sleep(0)
        jobs["b"].cancel()
        await settle()
        assert gate.waiting == 2
    async with asyncio.timeout(60):
        await asyncio.gather(*jobs.values(), return_exceptions=True)

    assert ready == ["a", "c"]
    assert gate.waiting == 0
