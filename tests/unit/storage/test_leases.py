"""Leases, for owners on machines whose locks cannot be seen from here."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deerflow.domain import RunRequest
from deerflow.storage import RunStore
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock
from deerflow.storage.sqlite.connection import SQLITE
from deerflow.storage.sqlite.engine import SqliteEngine

CLOCK = SQLITE.clock
ELSEWHERE = "elsewhere-7-abc"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(tmp_path / "deerflow.db")
    yield engine
    await engine.aclose()


async def seconds_left(engine: SqliteEngine) -> float:
    sql = f"SELECT lease_until - {CLOCK} FROM runs WHERE id = 'r1'"
    return await engine.read(lambda db: float(db.execute(sql).fetchone()[0]))


async def shorten(engine: SqliteEngine, seconds: int) -> None:
    sql = f"UPDATE runs SET lease_until = {CLOCK} + {seconds}"
    await engine.write(lambda db: db.execute(sql) and None)


async def test_a_run_of_another_machine_is_an_orphan_once_its_lease_ran_out(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    runs, lock = RunStore(engine), OwnerLock(tmp_path / "owners")
    await runs.create("r1", RunRequest("t1"), owner=ELSEWHERE)

    assert await runs.orphans(lock) == []
    await shorten(engine, -1)
    assert [run.id for run in await runs.orphans(lock)] == ["r1"]
    await runs.heartbeat(ELSEWHERE)
    assert await runs.orphans(lock) == []
    lock.close()


async def test_a_live_owner_on_this_machine_keeps_its_run_after_its_lease(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    runs, mine, other = RunStore(engine), OwnerLock(tmp_path), OwnerLock(tmp_path)
    await runs.create("r1", RunRequest("t1"), owner=other.id)
    await shorten(engine, -100)

    assert await runs.orphans(mine) == []
    other.close()
    assert [run.id for run in await runs.orphans(mine)] == ["r1"]
    mine.close()


async def test_a_heartbeat_writes_only_when_half_of_the_lease_is_over(engine: SqliteEngine) -> None:
    runs = RunStore(engine)
    await runs.create("r1", RunRequest("t1"), owner=ELSEWHERE)
    await shorten(engine, LEASE_SECONDS - 5)

    await runs.heartbeat(ELSEWHERE)
    assert await seconds_left(engine) <= LEASE_SECONDS - 5
    await shorten(engine, 3)
    await runs.heartbeat(ELSEWHERE)
    assert await seconds_left(engine) > LEASE_SECONDS - 5
