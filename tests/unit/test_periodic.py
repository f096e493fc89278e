"""Work that is repeated in the background survives its own failures."""

import asyncio

import pytest

from deerflow.errors import ConflictError
from deerflow.periodic import Periodic


async def test_a_failure_is_logged_and_the_next_call_follows(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception | None] = [ConflictError("busy"), ValueError("bug"), None]
    done = asyncio.Event()

    async def work() -> None:
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure
        done.set()

    poll = Periodic(work, lambda: 0, name="polling").start()
    async with asyncio.timeout(10):
        await done.wait()
    await poll.aclose()

    assert "polling failed, trying again: busy" in caplog.messages
    assert [bool(record.exc_info) for record in caplog.records[:2]] == [False, True]


async def test_waking_calls_without_waiting_and_closing_ends_the_work() -> None:
    calls: asyncio.Queue[None] = asyncio.Queue()
    poll = Periodic(lambda: calls.put(None), 3600, name="polling").start()

    async with asyncio.timeout(10):
        await calls.get()
        poll.wake()
        await calls.get()
        await poll.aclose()

    poll.wake()
    await asyncio.sleep(0)
    assert calls.empty()
