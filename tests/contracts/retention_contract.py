"""What is deleted when it was kept long enough, and what is left of it: the same for every database."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.run_managers import Steps, hello, open_run_manager

from deerflow.domain import RunRecord, RunStatus, StreamEvent
from deerflow.runtime import RunManager
from deerflow.runtime.event_log import drop_expired_events
from deerflow.storage import LogEntry, Storage

TOMORROW = timedelta(days=1)


async def events(manager: RunManager, run: RunRecord, after_seq: int = -1) -> list[StreamEvent]:
    return [event async for batch in manager.subscribe(run.id, after_seq=after_seq) for event in batch]


class RetentionContract:
    """A subclass supplies `storage`."""

    @pytest.fixture
    def steps(self) -> Steps:
        return Steps()

    @pytest.fixture
    async def manager(self, storage: Storage, tmp_path: Path, steps: Steps) -> AsyncIterator[RunManager]:
        async with open_run_manager(storage, tmp_path, steps) as manager:
            yield manager

    async def turn(self, manager: RunManager, steps: Steps, thread: str = "t1") -> RunRecord:
        steps.let(thread)
        return await manager.wait((await manager.start(hello(thread))).id)

    async def test_expired_events_are_deleted_and_the_stream_still_ends(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await self.turn(manager, steps)
        before = await events(manager, run)
        kept = await drop_expired_events(storage.retention, 2, now=datetime.now(UTC) + TOMORROW)

        dropped = await drop_expired_events(storage.retention, 0.5, now=datetime.now(UTC) + TOMORROW)

        assert (kept, dropped, len(before) > 3) == (0, 1, True)
        assert [event.kind for event in await events(manager, run)] == ["end"]
        assert [event.kind for event in await events(manager, run, after_seq=before[3].seq)] == ["end"]
        assert await storage.events.digests("t1") == {}
        assert (await manager.get(run.id)).status is RunStatus.SUCCESS

    async def test_a_log_that_is_deleted_while_it_is_read_still_ends(
        self, manager: RunManager, storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = await self.turn(manager, steps)
        read = storage.events.read

        async def read_and_lose(*args: Any, **more: Any) -> list[LogEntry]:
            found = await read(*args, **more)
            await drop_expired_events(storage.retention, 0.5, now=datetime.now(UTC) + TOMORROW)
            return found

        monkeypatch.setattr(storage.events, "read", read_and_lose)

        assert [event.kind for event in await events(manager, run)] == ["end"]

    async def test_without_a_limit_nothing_is_deleted(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await self.turn(manager, steps)
        before = await events(manager, run)

        dropped = await drop_expired_events(storage.retention, None, now=datetime.now(UTC) + 1000 * TOMORROW)

        assert dropped == 0
        assert await events(manager, run) == before

    async def test_a_run_that_failed_still_says_why(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await manager.start(hello("t1", recursion_limit=1))
        steps.let("t1")
        assert (await manager.wait(run.id)).status is RunStatus.ERROR

        await drop_expired_events(storage.retention, 0.5, now=datetime.now(UTC) + TOMORROW)

        received = await events(manager, run)
        assert [event.kind for event in received] == ["error", "end"]
        assert b"used all 1 steps" in received[0].data

    async def test_runs_in_flight_and_their_threads_are_not_changed(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        old = await self.turn(manager, steps)
        steps.gates.clear()
        steps.let("t1", "first")
        run = await manager.start(hello("t1"))
        await steps.until("t1", "second", times=2)

        dropped = await drop_expired_events(storage.retention, 0.5, now=datetime.now(UTC) + TOMORROW)
        steps.let("t1")
        await manager.wait(run.id)

        assert dropped == 1
        assert [event.kind for event in await events(manager, old)] == ["end"]
        whole = await events(manager, run)
        assert whole[-1].kind == "end"
        assert whole[-2].data.count(b"hello") == 2

    async def test_a_thread_continues_after_its_events_were_deleted(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        await self.turn(manager, steps)
        await drop_expired_events(storage.retention, 0.5, now=datetime.now(UTC) + TOMORROW)

        run = await self.turn(manager, steps)

        assert run.status is RunStatus.SUCCESS
        assert (await events(manager, run))[-2].data.count(b"hello") == 2

    async def test_a_thread_keeps_its_newest_checkpoints_and_its_whole_conversation(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        config = {"configurable": {"thread_id": "t1"}}
        runs = [await self.turn(manager, steps) for _ in range(4)]
        before = [found async for found in storage.checkpoints.alist(config)]  # type: ignore[arg-type]

        await storage.retention.drop_checkpoints(runs[-1].thread_id, keep=3)

        after = [found async for found in storage.checkpoints.alist(config)]  # type: ignore[arg-type]
        assert len(before) > len(after) >= 3
        assert [found.config for found in after[:3]] == [found.config for found in before[:3]]
        again = await self.turn(manager, steps)
        assert (await events(manager, again))[-2].data.count(b"hello") == 5

    async def test_checkpoints_of_a_busy_thread_are_kept(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        run = await self.turn(manager, steps)
        steps.gates.clear()
        again = await manager.start(hello("t1"))
        await steps.until("t1", "first", times=2)

        dropped = await storage.retention.drop_checkpoints("t1", keep=1)

        steps.let("t1")
        await manager.wait(again.id)
        assert dropped == 0
        await storage.retention.drop_checkpoints(run.thread_id, keep=1)
