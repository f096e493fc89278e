"""What is deleted when it was kept long enough, and what is left of it: the same for every database."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.desk import Steps, asking, opened_desk

from deerflow.config import RunSettings
from deerflow.domain import RunRecord, RunStatus, StreamEvent
from deerflow.runtime import RunManager
from deerflow.runtime.housekeeping import Housekeeping
from deerflow.storage import LogEntry, Storage

TOMORROW = timedelta(days=1)


async def events(desk: RunManager, run: RunRecord, after_seq: int = -1) -> list[StreamEvent]:
    return [event async for batch in desk.subscribe(run.id, after_seq=after_seq) for event in batch]


def keeping(storage: Storage, **settings: float | int) -> Housekeeping:
    chosen = RunSettings.model_validate(settings)
    return Housekeeping(retention=storage.retention, settings=lambda: chosen)


class RetentionContract:
    """A subclass supplies `storage`."""

    @pytest.fixture
    def steps(self) -> Steps:
        return Steps()

    @pytest.fixture
    async def desk(self, storage: Storage, tmp_path: Path, steps: Steps) -> AsyncIterator[RunManager]:
        async with opened_desk(storage, tmp_path, steps) as desk:
            yield desk

    async def turn(self, desk: RunManager, steps: Steps, thread: str = "t1") -> RunRecord:
        steps.let(thread)
        return await desk.wait((await desk.create_or_reject(asking(thread))).id)

    async def test_events_go_when_their_time_is_over_and_the_stream_still_ends(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await self.turn(desk, steps)
        before = await events(desk, run)
        kept = await keeping(storage, retention_days=2).make_round(now=datetime.now(UTC) + TOMORROW)

        dropped = await keeping(storage, retention_days=0.5).make_round(now=datetime.now(UTC) + TOMORROW)

        assert (kept, dropped, len(before) > 3) == (0, 1, True)
        assert [event.kind for event in await events(desk, run)] == ["end"]
        assert [event.kind for event in await events(desk, run, after_seq=before[3].seq)] == ["end"]
        assert await storage.events.digests("t1") == {}
        assert (await desk.get(run.id)).status is RunStatus.SUCCESS

    async def test_a_log_that_goes_while_it_is_read_still_ends(
        self, desk: RunManager, storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = await self.turn(desk, steps)
        read = storage.events.read

        async def read_and_lose(*args: Any, **more: Any) -> list[LogEntry]:
            found = await read(*args, **more)
            await keeping(storage, retention_days=0.5).make_round(now=datetime.now(UTC) + TOMORROW)
            return found

        monkeypatch.setattr(storage.events, "read", read_and_lose)

        assert [event.kind for event in await events(desk, run)] == ["end"]

    async def test_without_a_limit_everything_is_kept(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await self.turn(desk, steps)
        before = await events(desk, run)

        dropped = await keeping(storage).make_round(now=datetime.now(UTC) + 1000 * TOMORROW)

        assert dropped == 0
        assert await events(desk, run) == before

    async def test_a_run_that_failed_still_says_why(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await desk.create_or_reject(asking("t1", recursion_limit=1))
        steps.let("t1")
        assert (await desk.wait(run.id)).status is RunStatus.ERROR

        await keeping(storage, retention_days=0.5).make_round(now=datetime.now(UTC) + TOMORROW)

        told = await events(desk, run)
        assert [event.kind for event in told] == ["error", "end"]
        assert b"used all 1 steps" in told[0].data

    async def test_runs_in_flight_and_their_threads_are_left_alone(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        old = await self.turn(desk, steps)
        steps.gates.clear()
        steps.let("t1", "first")
        run = await desk.create_or_reject(asking("t1"))
        await steps.until("t1", "second", times=2)

        dropped = await keeping(storage, retention_days=0.5).make_round(now=datetime.now(UTC) + TOMORROW)
        steps.let("t1")
        await desk.wait(run.id)

        assert dropped == 1
        assert [event.kind for event in await events(desk, old)] == ["end"]
        whole = await events(desk, run)
        assert whole[-1].kind == "end"
        assert whole[-2].data.count(b"hello") == 2

    async def test_a_thread_goes_on_after_its_events_went(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        await self.turn(desk, steps)
        await keeping(storage, retention_days=0.5).make_round(now=datetime.now(UTC) + TOMORROW)

        run = await self.turn(desk, steps)

        assert run.status is RunStatus.SUCCESS
        assert (await events(desk, run))[-2].data.count(b"hello") == 2

    async def test_a_thread_keeps_so_many_checkpoints_and_its_whole_conversation(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        config = {"configurable": {"thread_id": "t1"}}
        runs = [await self.turn(desk, steps) for _ in range(4)]
        before = [found async for found in storage.checkpoints.alist(config)]  # type: ignore[arg-type]

        await keeping(storage, checkpoints_kept=3).tidy_after(runs[-1])

        after = [found async for found in storage.checkpoints.alist(config)]  # type: ignore[arg-type]
        assert len(before) > len(after) >= 3
        assert [found.config for found in after[:3]] == [found.config for found in before[:3]]
        again = await self.turn(desk, steps)
        assert (await events(desk, again))[-2].data.count(b"hello") == 5

    async def test_checkpoints_of_a_thread_at_work_stay(
        self, desk: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await self.turn(desk, steps)
        steps.gates.clear()
        again = await desk.create_or_reject(asking("t1"))
        await steps.until("t1", "first", times=2)

        dropped = await storage.retention.drop_checkpoints("t1", keep=1)

        steps.let("t1")
        await desk.wait(again.id)
        assert dropped == 0
        await keeping(storage, checkpoints_kept=1).tidy_after(run)
