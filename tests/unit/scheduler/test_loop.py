"""When the scheduler starts runs, on a clock that the test sets."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from deerflow.domain import RunRecord, RunRequest, RunStatus
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError, StorageError, ThreadBusyError
from deerflow.scheduler import CronJob, CronStore, Scheduler, tick_key
from deerflow.scheduler.loop import CRON_ID
from deerflow.scheduler.store import MAX_CRONS

START = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)


class FakeRuntime:
    """Starts runs as the runtime does: the same key again brings back the same run."""

    def __init__(self) -> None:
        self.now = START
        self.runs: dict[str, RunRecord] = {}
        self.refuses: Callable[[], Exception] | None = None
        self.has_thread = True

    async def start(self, cron: CronJob, tick: datetime) -> RunRecord | None:
        if self.refuses is not None:
            raise self.refuses()
        if not self.has_thread:
            return None
        key = tick_key(cron, tick)
        request = RunRequest(thread_id="t", metadata={CRON_ID: cron.id}, idempotency_key=key)
        return self.runs.setdefault(key, RunRecord(key, request, RunStatus.RUNNING, self.now, self.now))

    async def active(self) -> list[RunRecord]:
        return [run for run in self.runs.values() if not run.status.is_terminal]

    def end_all(self) -> None:
        self.runs = {key: replace(run, status=RunStatus.SUCCESS) for key, run in self.runs.items()}


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def crons() -> CronStore:
    return CronStore(InMemoryStore())


def scheduler(runtime: FakeRuntime, crons: CronStore, max_running: int = 10) -> Scheduler:
    return Scheduler(
        crons=crons,
        start=runtime.start,
        active=runtime.active,
        poll_seconds=5,
        max_running=max_running,
        clock=lambda: runtime.now,
    )


def cron(cron_id: str = "c1", **more: object) -> CronJob:
    return CronJob(cron_id, "u", "*/5 * * * *", {}, START, START, START, **more)  # type: ignore[arg-type]


async def test_many_servers_start_one_run_for_a_tick(runtime: FakeRuntime, crons: CronStore) -> None:
    await crons.create(cron())
    servers = [scheduler(runtime, crons) for _ in range(3)]
    runtime.now = START + timedelta(minutes=5, seconds=1)

    for server in servers:
        await server.poll()

    assert list(runtime.runs) == [f"cron:c1:{(START + timedelta(minutes=5)).isoformat()}"]


async def test_a_server_that_died_before_it_stored_the_tick_starts_no_second_run(
    runtime: FakeRuntime, crons: CronStore
) -> None:
    await crons.create(cron())
    runtime.now = START + timedelta(minutes=5)
    await runtime.start(cron(), START + timedelta(minutes=5))

    await scheduler(runtime, crons).poll()

    assert len(runtime.runs) == 1


async def test_a_long_pause_is_made_up_for_by_one_run(runtime: FakeRuntime, crons: CronStore) -> None:
    await crons.create(cron())
    runtime.now = START + timedelta(days=2, minutes=1)

    await scheduler(runtime, crons).poll()
    await scheduler(runtime, crons).poll()
    runtime.now += timedelta(minutes=4)
    await scheduler(runtime, crons).poll()

    assert [key[-25:] for key in runtime.runs] == ["2026-11-18T10:00:00+00:00", "2026-11-18T10:05:00+00:00"]


async def test_runs_above_the_limit_wait(runtime: FakeRuntime, crons: CronStore) -> None:
    for number in range(3):
        await crons.create(cron(f"c{number}"))
    runtime.now = START + timedelta(minutes=5)
    server = scheduler(runtime, crons, max_running=2)

    first = await server.poll()
    full = await server.poll()
    runtime.end_all()
    rest = await server.poll()

    assert (len(first), full, len(rest)) == (2, [], 1)


@pytest.mark.parametrize(
    "refusal", [lambda: ThreadBusyError("t", "r"), lambda: InvalidInputError("no such model")]
)
async def test_a_tick_that_could_not_start_is_not_tried_again(
    runtime: FakeRuntime, crons: CronStore, refusal: Callable[[], Exception]
) -> None:
    await crons.create(cron())
    runtime.now, runtime.refuses = START + timedelta(minutes=5), refusal
    server = scheduler(runtime, crons)

    refused = await server.poll()
    runtime.refuses = None
    again = await server.poll()
    runtime.now += timedelta(minutes=5)
    later = await server.poll()

    assert (refused, again, len(later)) == ([], [], 1)


async def test_a_cron_goes_with_its_thread(runtime: FakeRuntime, crons: CronStore) -> None:
    await crons.create(cron(thread_id="gone"))
    runtime.now, runtime.has_thread = START + timedelta(minutes=5), False

    await scheduler(runtime, crons).poll()

    assert await crons.of_user("u") == []
    assert await crons.ticks() == {}


async def test_crons_are_kept_whole_and_apart_by_user(crons: CronStore) -> None:
    mine = cron(
        thread_id="t1", end_time=START, timezone="Europe/Berlin", on_run_completed="keep", metadata={"a": 1}
    )
    await crons.create(mine)

    assert await crons.get("c1", "u") == mine
    with pytest.raises(NotFoundError):
        await crons.get("c1", "somebody")


async def test_nobody_has_more_crons_than_the_limit(
    crons: CronStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.scheduler.store.MAX_CRONS", 2)
    for number in range(2):
        await crons.create(cron(f"c{number}"))

    with pytest.raises(ConflictError, match="delete some first"):
        await crons.create(cron("c9"))
    assert MAX_CRONS > 2


async def test_the_loop_sleeps_until_the_next_time_and_wakes_for_news(
    runtime: FakeRuntime, crons: CronStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    asleep = asyncio.Event()

    async def wait_for(waiting: Any, seconds: float) -> None:
        slept.append(seconds)
        asleep.set()
        await waiting

    monkeypatch.setattr("deerflow.scheduler.loop.asyncio.wait_for", wait_for)
    server = scheduler(runtime, crons)
    running = asyncio.create_task(server.run())
    await asleep.wait()
    asleep.clear()

    runtime.now = START + timedelta(minutes=4, seconds=58)
    await crons.create(cron())
    server.wake()
    await asleep.wait()
    running.cancel()

    assert slept == [5, 2]


async def test_a_store_that_fails_does_not_end_the_loop(runtime: FakeRuntime, crons: CronStore) -> None:
    server = scheduler(runtime, crons)
    failures = [StorageError("the database is away")]
    real, polled = server.poll, asyncio.Event()

    async def poll() -> list[RunRecord]:
        if failures:
            server.wake()
            raise failures.pop()
        polled.set()
        return await real()

    server.poll = poll  # type: ignore[method-assign]
    running = asyncio.create_task(server.run())

    await asyncio.wait_for(polled.wait(), 60)
    running.cancel()


async def test_times_are_computed_once_however_often_it_polls(
    runtime: FakeRuntime, crons: CronStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await crons.create(cron(f"c{number}"))
    server = scheduler(runtime, crons)
    reckoned: list[str] = []
    real = CronJob.next_after

    def next_after(self: CronJob, time: datetime) -> datetime | None:
        reckoned.append(self.id)
        return real(self, time)

    monkeypatch.setattr(CronJob, "next_after", next_after)

    for _ in range(10):
        await server.poll()

    assert len(reckoned) == 20
