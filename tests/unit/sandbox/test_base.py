"""Locks of files: who holds one may take it again, others wait."""

import asyncio

from deerflow.sandbox.base import FileLocks


async def test_the_holder_of_a_lock_and_its_tasks_may_take_it_again() -> None:
    locks = FileLocks()
    done: list[str] = []

    async def write(name: str) -> None:
        async with locks.hold(name):
            done.append(name)

    async with asyncio.timeout(60), locks.hold("a"), locks.hold("b"):
        await write("a")
        await asyncio.create_task(write("b"))

    assert done == ["a", "b"]


async def test_another_task_waits_until_all_of_it_is_over() -> None:
    locks = FileLocks()
    order: list[str] = []

    async def other() -> None:
        async with locks.hold("a"):
            order.append("other")

    waiting = asyncio.create_task(other())
    async with locks.hold("a"):
        await asyncio.sleep(0)
        async with locks.hold("a"):
            order.append("inner")
        await asyncio.sleep(0)
        order.append("outer")
    await asyncio.wait_for(waiting, 60)
    async with locks.hold("a"):
        order.append("again")

    assert order == ["inner", "outer", "other", "again"]


async def test_a_file_lock_serves_one_task_at_a_time_and_its_owner_again() -> None:
    locks, order = FileLocks(), []

    async def work(name: str) -> None:
        async with locks.hold("file"):
            async with locks.hold("file"):
                order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(work("a"), work("b"))

    assert order == ["a in", "a out", "b in", "b out"]
