"""Tasks of one caller end together, if they end at nearly the same time."""

import asyncio

import pytest

from deerflow.subagents import company as company_module
from deerflow.subagents.company import Company


async def told() -> None:
    """Tell nobody."""


async def test_who_has_ended_goes_on_with_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(company_module, "MOMENT_SECONDS", 60)
    company = Company()
    order: list[str] = []

    async def told() -> None:
        order.append("all is told")

    may_end = {name: asyncio.Event() for name in "abc"}

    async def work(name: str) -> None:
        async with company.of("lead", told=told):
            await may_end[name].wait()
            order.append(f"{name} is told of")
        order.append(f"{name} goes on")

    jobs = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0)
    for name in "abc":
        may_end[name].set()
        await asyncio.sleep(0)
    await asyncio.gather(*jobs)

    assert order[:4] == ["a is told of", "b is told of", "c is told of", "all is told"]
    assert sorted(order[4:]) == ["a goes on", "b goes on", "c goes on"]


async def test_nobody_waits_long_for_one_that_still_works_nor_for_tasks_of_another_caller() -> None:
    company = Company()
    never = asyncio.Event()

    async def work(caller: str) -> None:
        async with company.of(caller, told=told):
            await never.wait()

    others = [asyncio.create_task(work(caller)) for caller in ("lead", "another")]
    await asyncio.sleep(0)

    async with asyncio.timeout(60):
        async with company.of("lead", told=told):
            pass
        async with company.of("alone", told=told):
            pass

    assert not any(each.done() for each in others)
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_one_that_is_stopped_does_not_wait_and_lets_the_others_go() -> None:
    company = Company()

    async def work(seconds: float) -> None:
        async with company.of("lead", told=told):
            await asyncio.sleep(seconds)

    stopped = asyncio.create_task(work(3600))
    await asyncio.sleep(0)
    ended = asyncio.create_task(work(0))
    await asyncio.sleep(0)
    stopped.cancel()

    async with asyncio.timeout(60):
        await asyncio.gather(stopped, ended, return_exceptions=True)
    assert stopped.cancelled()
