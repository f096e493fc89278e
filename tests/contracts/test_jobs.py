"""Jobs dispatch pending runs to processes, and none is left over when a process dies."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.postgres import PostgresServer
from support.run_managers import hello

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


class Taker:
    """Takes dispatched runs, and holds them until it is released."""

    def __init__(self, *, holds: bool = False) -> None:
        self.taken: list[str] = []
        self._news = asyncio.Event()
        self._gate = asyncio.Event()
        if not holds:
            self._gate.set()

    async def take(self, run_id: str) -> None:
        self.taken.append(run_id)
        self._news.set()
        await self._gate.wait()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(60):
            while len(self.taken) < count:
                self._news.clear()
                await self._news.wait()
        return self.taken


@asynccontextmanager
async def following(storage: Storage, taker: Taker, concurrency: int = 10) -> AsyncIterator[None]:
    assert storage.jobs is not None
    task = asyncio.create_task(storage.jobs.follow(taker.take, concurrency=concurrency))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def settings(postgres: PostgresServer) -> DatabaseSettings:
    return postgres.settings()


@pytest.fixture
async def storage(settings: DatabaseSettings, tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(settings, Paths(tmp_path)) as storage:
        yield storage


def rows(settings: DatabaseSettings, sql: str) -> list[tuple[Any, ...]]:
    options = f"-c search_path={settings.postgres_schema}"
    with psycopg.connect(settings.postgres_url, options=options, autocommit=True) as connection:
        cursor = connection.execute(sql)  # type: ignore[call-overload]
        return list(cursor.fetchall()) if cursor.description else []


async def test_each_run_is_dispatched_once_in_the_order_of_admission(
    storage: Storage, settings: DatabaseSettings
) -> None:
    taker = Taker()
    async with following(storage, taker):
        for number in range(10):
            await storage.runs.create(f"r{number}", hello(f"t{number}"))
        taken = await taker.until(10)

    assert taken == [f"r{number}" for number in range(10)]
    assert rows(settings, "SELECT status FROM procrastinate_jobs") == []
    assert rows(settings, "SELECT id FROM procrastinate_workers") == []


async def test_no_more_runs_are_dispatched_than_the_concurrency(storage: Storage) -> None:
    full, free = Taker(holds=True), Taker()
    async with following(storage, full, concurrency=2):
        for number in range(2):
            await storage.runs.create(f"r{number}", hello(f"t{number}"))
        await full.until(2)
        async with following(storage, free):
            await storage.runs.create("r2", hello("t2"))
            await free.until(1)

    assert (full.taken, free.taken) == (["r0", "r1"], ["r2"])


async def test_a_released_run_is_dispatched_again(storage: Storage) -> None:
    taker = Taker()
    await storage.runs.create("r1", hello("t1"))
    claimed = await storage.runs.claim("r1", owner="me", attempt=0)
    async with following(storage, taker):
        await storage.runs.release("r1", attempt=claimed.attempt)
        taken = await taker.until(1)

    assert taken == ["r1"]


async def test_a_delayed_run_is_dispatched_at_its_start_time(storage: Storage) -> None:
    for number, seconds in enumerate((0.5, 5, 30)):  # longer where its time came too soon
        taker, began = Taker(), time.monotonic()
        later, now = f"later{number}", f"now{number}"
        async with following(storage, taker):
            await storage.runs.create(later, hello(later, after_seconds=seconds))
            await storage.runs.create(now, hello(now))
            first = list(await taker.until(1))
            took = time.monotonic() - began
            taken = await taker.until(2)
        if took < seconds:
            break

    assert (first, taken) == ([now], [now, later])


async def test_a_cancelled_process_leaves_no_job(storage: Storage, settings: DatabaseSettings) -> None:
    taker = Taker(holds=True)
    async with following(storage, taker):
        await storage.runs.create("r1", hello("t1"))
        await taker.until(1)
        assert storage.jobs is not None
        listening = await storage.jobs.workers()

    assert listening == 1
    assert rows(settings, "SELECT status FROM procrastinate_jobs") == []
    assert await storage.jobs.workers() == 0


async def test_jobs_of_dead_processes_are_deleted(storage: Storage, settings: DatabaseSettings) -> None:
    taker = Taker()
    await storage.runs.create("r1", hello("t1"))
    await storage.runs.create("r2", hello("t2"))
    rows(
        settings,
        "WITH dead AS (INSERT INTO procrastinate_workers (last_heartbeat) "
        "VALUES (now() - interval '1 hour') RETURNING id) UPDATE procrastinate_jobs "
        "SET status = 'doing', worker_id = (SELECT id FROM dead) WHERE args->>'run_id' = 'r1'",
    )
    async with following(storage, taker):
        assert await taker.until(1) == ["r2"]
        async with asyncio.timeout(60):
            while left := rows(settings, "SELECT status FROM procrastinate_jobs"):  # noqa: ASYNC110 - no word
                await asyncio.sleep(0.05)

    assert left == []
    assert rows(settings, "SELECT id FROM procrastinate_workers") == []


async def test_runs_are_dispatched_again_after_an_outage(tmp_path: Path) -> None:
    taker = Taker()
    with PostgresServer.running() as server:
        async with open_storage(server.settings(), Paths(tmp_path)) as storage, following(storage, taker):
            await storage.runs.create("before", hello("t1"))
            await taker.until(1)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            await storage.runs.create("after", hello("t2"))
            taken = await taker.until(2)

    assert taken == ["before", "after"]
