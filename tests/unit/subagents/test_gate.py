"""The gate shares its places out fairly and loses none."""

import asyncio
from collections.abc import Callable

from deerflow.subagents.gate import FairGate, Holder


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_run_at_once() -> None:
    gate = FairGate(3)
    running = most = 0

    async def work(number: int) -> None:
        nonlocal running, most
        async with gate.place(Holder(f"run {number % 4}")):
            running += 1
            most = max(most, running)
            await settle()
            running -= 1

    await asyncio.gather(*(work(n) for n in range(40)))

    assert (most, running, gate.waiting) == (3, 0, 0)


def holder(gate: FairGate, order: list[str]) -> Callable[[str], "asyncio.Task[None]"]:
    async def hold(owner: str) -> None:
        async with gate.place(Holder(owner)):
            order.append(owner)

    return lambda owner: asyncio.create_task(hold(owner))


async def test_a_wide_run_does_not_starve_a_narrow_one() -> None:
    gate = FairGate(1)
    order: list[str] = []
    start = holder(gate, order)
    async with gate.place(Holder("first")):
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
    async with gate.place(Holder("first")):
        gone, stays = start("a"), start("b")
        await settle()
        gone.cancel()
        await settle()
        assert gate.waiting == 1
        also_gone = start("c")
        await settle()

    also_gone.cancel()
    await asyncio.gather(stays, also_gone, return_exceptions=True)
    async with asyncio.timeout(1), gate.place(Holder("last")):
        assert "b" in order


async def test_a_place_that_comes_with_the_cancellation_is_given_on() -> None:
    gate = FairGate(1)
    order: list[str] = []
    start = holder(gate, order)
    async with gate.place(Holder("first")):
        loser, winner = start("a"), start("b")
        await settle()
    loser.cancel()  # its turn has come, but it has not run yet

    await asyncio.gather(loser, winner, return_exceptions=True)

    assert order == ["b"]
