"""Waits for facts that nobody announces, generously: other jobs may share the machine."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
from support.gateway import DeerFlowProcess

from deerflow.domain import new_id


async def until(is_so: Callable[[], Any], *, seconds: float = 60) -> None:
    """Wait for something that happens in another process and tells nobody."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)


async def logged(process: DeerFlowProcess, words: str) -> None:
    """Wait until a process has said something in its log since it was started."""
    await until(lambda: words in process.log_since_start)


async def stored(api: httpx.AsyncClient) -> None:
    """Wait until all is stored that a server has written so far: it stores one thing after another."""
    answer = await api.post("/threads", json={"thread_id": new_id()})
    assert answer.status_code == 200, answer.text


async def completed(api: httpx.AsyncClient, run: str, count: int) -> list[dict[str, Any]]:
    """Return so many completed tasks of a run, given its path, once they are completed and stored."""
    async with asyncio.timeout(60):
        while True:
            rows = (await api.get(f"{run}/tasks")).json()
            done = [row for row in rows if row["status"] == "completed"]
            if len(done) >= count:
                await stored(api)
                return done
            await asyncio.sleep(0.05)
