"""Many processes on one PostgreSQL: one of them gets a run, and no other writes for it."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import (
    generate_checkpoint,
    generate_config,
    generate_metadata,
)
from support.postgres import PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import CancelAction, MultitaskStrategy, RunRequest, RunStatus
from deerflow.errors import StaleAttemptError, ThreadBusyError
from deerflow.storage import LogBatch, LogEntry, OwnerLock, RunEnd, Storage, fence, open_storage
from deerflow.storage.postgres.engine import PostgresEngine

DONE = RunEnd(RunStatus.SUCCESS)
ENQUEUE = MultitaskStrategy.ENQUEUE
CLAIM = """
import asyncio, sys
from pathlib import Path
from deerflow.config import DatabaseSettings, Paths
from deerflow.errors import StaleAttemptError
from deerflow.storage import open_storage

async def main(url, schema, me):
    settings = DatabaseSettings(backend="postgres", postgres_url=url, postgres_schema=schema)
    async with open_storage(settings, Paths(Path("/nonexistent"))) as storage:
        print("ready", flush=True)
        sys.stdin.readline()
        won = 0
        for number in range(20):
            try:
                await storage.runs.claim(f"r{number}", owner=me, attempt=0)
                won += 1
            except StaleAttemptError:
                continue
        print(won, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def schema(postgres: PostgresServer) -> DatabaseSettings:
    return postgres.settings()


@pytest.fixture
async def storages(
    postgres: PostgresServer, schema: DatabaseSettings, tmp_path: Path
) -> AsyncIterator[tuple[Storage, Storage]]:
    """Return the same database twice, as two processes have it."""
    postgres.clean(schema)
    async with (
        open_storage(schema, Paths(tmp_path / "a"), lease_seconds=600) as here,
        open_storage(schema, Paths(tmp_path / "b"), lease_seconds=600) as there,
    ):
        yield here, there


def batch(seq: int, attempt: int) -> LogBatch:
    return LogBatch("r1", "t1", attempt, [LogEntry(seq, 0, "values", b'"%d"' % attempt)])


def jobs(schema: DatabaseSettings) -> list[tuple[str, bool]]:
    """Return the runs that have a job, and whether it is for later."""
    with psycopg.connect(schema.postgres_url) as connection:
        return connection.execute(
            f"SELECT args ->> 'run_id', scheduled_at IS NOT NULL "
            f"FROM {schema.postgres_schema}.procrastinate_jobs WHERE status = 'todo' ORDER BY id"
        ).fetchall()


async def test_of_many_processes_that_claim_a_run_one_succeeds(
    postgres: PostgresServer, schema: DatabaseSettings, storages: tuple[Storage, Storage]
) -> None:
    here, _ = storages
    for number in range(20):
        await here.runs.create(f"r{number}", RunRequest(f"t{number}"))
    arguments = (sys.executable, "-c", CLAIM, schema.postgres_url, schema.postgres_schema)
    children = [
        await asyncio.create_subprocess_exec(*arguments, f"child-{number}", stdin=PIPE, stdout=PIPE)
        for number in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"

    async def mine(owner: str, storage: Storage) -> int:
        outcomes = await asyncio.gather(
            *(storage.runs.claim(f"r{number}", owner=owner, attempt=0) for number in range(20)),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, StaleAttemptError) or outcome.owner == owner for outcome in outcomes)
        return sum(not isinstance(outcome, StaleAttemptError) for outcome in outcomes)

    results = [child.communicate(b"go\n") for child in children]
    won = await asyncio.gather(*(mine(f"me-{number}", storages[number % 2]) for number in range(17)))
    output = [int(out) for out, _ in await asyncio.gather(*results)]

    assert sum(won) + sum(output) == 20
    runs = [await here.runs.get(f"r{number}") for number in range(20)]
    assert {(run.status, run.attempt) for run in runs} == {(RunStatus.RUNNING, 1)}


async def test_a_stale_owner_writes_nothing_after_another_claimed_its_run(
    storages: tuple[Storage, Storage],
) -> None:
    zombie, other = storages
    await zombie.runs.create("r1", RunRequest("t1"), owner="zombie")
    await zombie.events.append(batch(0, 1))
    config = generate_config("t1")
    config["configurable"].update(fence("r1", 1))
    await zombie.checkpoints.aput(config, generate_checkpoint(), generate_metadata(), {})

    await other.runs.claim("r1", owner="other", attempt=1)

    with pytest.raises(StaleAttemptError):
        await zombie.events.append(batch(1, 1))
    with pytest.raises(StaleAttemptError):
        await zombie.checkpoints.aput(config, generate_checkpoint(), generate_metadata(), {})
    with pytest.raises(StaleAttemptError):
        await zombie.checkpoints.aput_writes(config, [("messages", 1)], "task")
    with pytest.raises(StaleAttemptError):
        await zombie.effects.start("r1", attempt=1, call=b"call")
    with pytest.raises(StaleAttemptError):
        await zombie.runs.settle("r1", attempt=1, end=DONE, last=batch(1, 1))
    await zombie.runs.release("r1", attempt=1)
    assert await zombie.runs.heartbeat("zombie") == {}
    assert [entry.body for entry in await other.events.read("r1")] == [b'"1"']
    assert (await other.runs.get("r1")).owner == "other"


async def test_no_append_succeeds_after_another_claim(storages: tuple[Storage, Storage]) -> None:
    await storages[0].runs.create("r1", RunRequest("t1"), owner="first")
    written: dict[int, int] = {}

    async def write(storage: Storage, attempt: int) -> None:
        """Append as long as the attempt lasts, behind whatever is stored."""
        try:
            while True:
                seq = await storage.events.last_seq("r1") + 1
                await storage.events.append(batch(seq, attempt))
                assert seq not in written
                written[seq] = attempt
        except StaleAttemptError:
            return

    writers = [asyncio.create_task(write(storages[0], 1))]
    for attempt in range(1, 12):
        while not written or max(written.values()) < attempt:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        storage = storages[attempt % 2]
        await storage.runs.claim("r1", owner=f"owner-{attempt}", attempt=attempt)
        writers.append(asyncio.create_task(write(storage, attempt + 1)))
    await storages[0].runs.claim("r1", owner="last", attempt=12)
    await asyncio.gather(*writers)

    log = await storages[0].events.read("r1", limit=100_000)
    attempts = [int(entry.body.strip(b'"')) for entry in log]
    assert [entry.seq for entry in log] == list(range(len(log)))
    assert attempts == sorted(attempts)
    assert {seq: attempts[seq] for seq in written} == written


async def test_one_of_many_is_admitted_to_a_free_thread(storages: tuple[Storage, Storage]) -> None:
    outcomes = await asyncio.gather(
        *(
            storages[number % 2].runs.create(f"r{number}", RunRequest("t1"), owner=f"o{number}")
            for number in range(30)
        ),
        return_exceptions=True,
    )

    busy = [outcome for outcome in outcomes if isinstance(outcome, ThreadBusyError)]
    assert len(busy) == 29
    assert [run.status for run in await storages[0].runs.of_thread("t1")] == [RunStatus.RUNNING]


async def test_the_same_request_from_two_gateways_is_one_run(storages: tuple[Storage, Storage]) -> None:
    runs = await asyncio.gather(
        *(
            storages[number % 2].runs.create(
                f"r{number}", RunRequest(f"t{number % 3}", idempotency_key="same"), owner="me"
            )
            for number in range(12)
        )
    )

    assert len({run.id for run in runs}) == 1
    assert len(await storages[0].runs.active()) == 1


async def test_enqueued_runs_of_two_gateways_run_one_at_a_time_in_order(
    storages: tuple[Storage, Storage],
) -> None:
    request = RunRequest("t1", multitask_strategy=ENQUEUE)
    await asyncio.gather(*(storages[number % 2].runs.create(f"r{number}", request) for number in range(20)))
    admitted = [run.id for run in reversed(await storages[0].runs.of_thread("t1"))]
    order: list[str] = []

    async def work(storage: Storage, owner: str) -> None:
        while len(order) < 20:
            run = await storage.runs.claim_next("t1", owner=owner)
            if run is None:
                await asyncio.sleep(0.001)
                continue
            order.append(run.id)
            await storage.runs.settle(run.id, attempt=run.attempt, end=DONE)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(storage, str(storage)) for storage in storages))

    assert order == admitted


def end_leases(schema: DatabaseSettings) -> None:
    """Make it late: all leases have run out."""
    with psycopg.connect(schema.postgres_url, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema.postgres_schema}.runs SET lease_until = lease_until - 1000")


async def test_a_silent_owner_loses_its_run_even_on_this_machine(
    schema: DatabaseSettings, storages: tuple[Storage, Storage], tmp_path: Path
) -> None:
    here, there = storages
    silent, other = OwnerLock(tmp_path / "owners"), OwnerLock(tmp_path / "owners")
    await here.runs.create("r1", RunRequest("t1"), owner=silent.id)
    assert await there.runs.orphans(other) == []

    end_leases(schema)

    assert [run.id for run in await there.runs.orphans(other, limit=5)] == ["r1"]
    assert await there.runs.orphans(other, limit=0) == []
    assert await here.runs.heartbeat(silent.id) == {"r1": 1}
    assert await there.runs.orphans(other) == []
    silent.close()
    assert [run.id for run in await there.runs.orphans(other)] == ["r1"]
    other.close()


async def test_every_waiting_run_has_one_job(
    schema: DatabaseSettings, storages: tuple[Storage, Storage]
) -> None:
    runs = storages[0].runs
    await runs.create("r1", RunRequest("t1"))
    assert jobs(schema) == [("r1", False)]
    await runs.claim("r1", owner="me", attempt=0)
    assert jobs(schema) == []
    await runs.create("r2", RunRequest("t1", multitask_strategy=ENQUEUE))
    await runs.create("r3", RunRequest("t1", multitask_strategy=ENQUEUE))
    await runs.create("later", RunRequest("t1", after_seconds=3600))
    assert jobs(schema) == [("later", True)]
    await runs.release("r1", attempt=1)
    await runs.release("r1", attempt=1)
    assert jobs(schema) == [("later", True), ("r1", False)]
    await runs.claim("r1", owner="me", attempt=1)
    await runs.settle("r1", attempt=2, end=DONE)
    assert jobs(schema) == [("later", True), ("r2", False)]
    await runs.request_cancel("r2", CancelAction.INTERRUPT)
    assert jobs(schema) == [("later", True), ("r3", False)]
    await runs.request_cancel("later", CancelAction.INTERRUPT)
    await storages[1].threads.delete("t1")
    assert jobs(schema) == []


async def test_processes_that_start_at_once_create_the_tables_once(postgres: PostgresServer) -> None:
    settings = postgres.settings()

    engines = await asyncio.gather(*(PostgresEngine.open(settings) for _ in range(4)))

    for engine in engines:
        found = await engine.read(
            lambda db: db.execute("SELECT version_num FROM deerflow_version").fetchall()
        )
        assert len(found) == 1
        await engine.aclose()
