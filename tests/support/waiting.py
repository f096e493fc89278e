"""Waits for facts that nobody announces, generously: other jobs may share the machine."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import httpx
from support.gateway import DeerFlowProcess

from deerflow.domain import new_id


async def until(is_so: Callable[[], Any], *, seconds: float = 120) -> Any:
    """Wait for something that happens elsewhere and tells nobody; return what was found, or awaited."""
    async with asyncio.timeout(seconds):
        while not (found := await _answer(is_so())):  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(0.02)
    return found


async def _answer(asked: Any) -> Any:
    return await asked if inspect.isawaitable(asked) else asked


def eventually(is_so: Callable[[], Any], *, seconds: float = 120) -> Any:
    """Wait as `until` does, in a test without a loop."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


async def logged(process: DeerFlowProcess, words: str) -> None:
    """Wait until a process has said something in its log since it was started."""
    await until(lambda: words in process.log_since_start)


async def stored(api: httpx.AsyncClient) -> None:
    """Wait until all is stored that a server has written so far: it stores one thing after another."""
    answer = await api.post("/threads", json={"thread_id": new_id()})
    assert answer.status_code == 200, answer.text


async def until_idle(api: httpx.AsyncClient, thread: str) -> None:
    """Wait until no run of a thread is under way, and none waits for a person."""

    async def is_idle() -> bool:
        return bool((await api.get(f"/threads/{thread}")).json()["status"] == "idle")

    await until(is_idle)


async def completed(api: httpx.AsyncClient, run: str, count: int) -> list[dict[str, Any]]:
    """Return so many completed tasks of a run, given its path, once they are completed and stored."""
    async with asyncio.timeout(120):
        while True:
            rows = (await api.get(f"{run}/tasks")).json()
            done = [row for row in rows if row["status"] == "completed"]
            if len(done) >= count:
                await stored(api)
                return done
            await asyncio.sleep(0.05)
