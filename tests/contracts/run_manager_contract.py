"""How processes that share a database share its runs: the same for every database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.run_managers import Steps, hello, open_run_manager
from support.waiting import until
from typing_extensions import override

from deerflow.domain import CancelAction, MultitaskStrategy, RunRecord, RunStatus
from deerflow.errors import StaleAttemptError, StorageAwayError
from deerflow.runtime import RunManager
from deerflow.storage import OwnerLock, RunEnd, Storage

ENQUEUE = MultitaskStrategy.ENQUEUE
PATIENT = 60.0
"""A grace in which every step that the test lets through comes to its end."""


async def ended(manager: RunManager, run: RunRecord) -> RunRecord:
    async with asyncio.timeout(60):
        return await manager.wait(run.id)


class RunManagerContract:
    """A subclass supplies `storage`, and `elsewhere`: the same database as another process has it open."""

    @pytest.fixture
    def steps(self) -> Steps:
        return Steps()

    @pytest.fixture
    async def manager(self, storage: Storage, tmp_path: Path, steps: Steps) -> AsyncIterator[RunManager]:
        async with open_run_manager(storage, tmp_path, steps, grace_seconds=PATIENT) as manager:
            yield manager

    async def test_a_run_that_is_stopped_while_it_begins_has_a_whole_log(
        self, storage: Storage, manager: RunManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begins, may_begin = asyncio.Event(), asyncio.Event()
        digests = storage.events.digests

        async def slow(thread_id: str) -> dict[bytes, int]:
            begins.set()
            await may_begin.wait()
            return await digests(thread_id)

        monkeypatch.setattr(storage.events, "digests", slow)
        run = await manager.start(hello("t1"))
        await begins.wait()

        await manager.cancel(run.id, action=CancelAction.ROLLBACK)
        may_begin.set()

        assert (await ended(manager, run)).status is RunStatus.INTERRUPTED
        events = [event async for batch in manager.subscribe(run.id) for event in batch]
        assert [event.kind for event in events] == ["metadata", "custom", "end"]

    async def test_no_more_runs_are_driven_at_once_than_there_is_room_for(
        self, storage: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        async with open_run_manager(storage, tmp_path, steps, capacity=2) as manager:
            runs = [await manager.start(hello(f"t{number}")) for number in range(4)]
            await steps.until("t0", "first")
            await steps.until("t1", "first")
            admitted = [run.status for run in runs]
            steps.let("t0")
            await ended(manager, runs[0])
            await steps.until("t2", "first")
            most = manager.in_progress
            for thread in ("t1", "t2", "t3"):
                steps.let(thread)
            last = [(await ended(manager, run)).status for run in runs]

        assert admitted == [RunStatus.RUNNING] * 2 + [RunStatus.PENDING] * 2
        assert most == 2
        assert last == [RunStatus.SUCCESS] * 4
        first = [thread for thread, step in steps.begun if step == "first"]
        assert (sorted(first[:2]), first[2:]) == (["t0", "t1"], ["t2", "t3"])

    async def test_a_long_queue_of_one_thread_lets_others_by(
        self, storage: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        steps.let("long", "second")
        steps.let("short")
        async with open_run_manager(storage, tmp_path, steps, capacity=1) as manager:
            runs = [await manager.start(hello("long"))]
            runs.append(await manager.start(hello("short")))
            runs += [await manager.start(hello("long", multitask_strategy=ENQUEUE)) for _ in range(3)]
            await steps.until("long", "first")
            steps.let("long")
            for run in runs:
                assert (await ended(manager, run)).status is RunStatus.SUCCESS

        order = [thread for thread, step in steps.begun if step == "first"]
        assert order.index("short") <= 2  # not behind all that wait in the other thread

    async def test_a_manager_without_room_leaves_its_runs_to_others(
        self, storage: Storage, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        steps.let("t1")
        async with open_run_manager(storage, tmp_path, steps, capacity=0) as manager:
            run = await manager.start(hello("t1"))
            before = await storage.runs.get(run.id)
            async with open_run_manager(elsewhere, tmp_path, steps, capacity=1):
                after = await ended(manager, run)

        assert (before.status, before.owner, before.attempt) == (RunStatus.PENDING, None, 0)
        assert (after.status, after.attempt) == (RunStatus.SUCCESS, 1)

    async def test_a_manager_that_closes_hands_its_runs_over_at_their_next_step(
        self, storage: Storage, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        async with open_run_manager(storage, tmp_path, steps, grace_seconds=PATIENT) as first:
            run = await first.start(hello("t1"))
            await steps.until("t1", "first")
            closing = asyncio.create_task(first.aclose())
            await asyncio.sleep(0)
            late = await first.start(hello("t2"))
            steps.let("t1", "first")
            await closing
            between = await storage.runs.get(run.id)
        steps.let("t1")
        steps.let("t2")
        async with open_run_manager(elsewhere, tmp_path, steps) as second:
            after = await ended(second, run)
            assert (await ended(second, late)).status is RunStatus.SUCCESS

        assert (between.status, between.owner) == (RunStatus.RUNNING, None)
        assert (after.status, after.attempt, after.releases) == (RunStatus.SUCCESS, 2, 1)
        assert late.status is RunStatus.PENDING
        assert steps.begun.count(("t1", "first")) == 1

    async def test_a_step_longer_than_the_grace_is_cut_off_and_done_again(
        self, storage: Storage, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        async with open_run_manager(storage, tmp_path, steps, grace_seconds=PATIENT) as first:
            run = await first.start(hello("t1"))
            await steps.until("t1", "first")
            closing = asyncio.create_task(first.aclose())
            await asyncio.sleep(0)
            first.skip_grace()
            await closing
        steps.let("t1")
        async with open_run_manager(elsewhere, tmp_path, steps) as second:
            after = await ended(second, run)

        assert (after.status, after.attempt) == (RunStatus.SUCCESS, 2)
        assert steps.begun.count(("t1", "first")) == 2

    async def test_a_run_of_a_dead_process_goes_on_from_its_last_step(
        self, storage: Storage, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        dead = OwnerLock(tmp_path / "owners")
        steps.let("t1", "first")
        async with open_run_manager(storage, tmp_path, steps) as first:
            run = await first.start(hello("t1", durability="sync"))
            await steps.until("t1", "second")
            # As if its process had died at the second step: another owner has it, and is gone.
            await storage.runs.claim(run.id, owner=dead.id, attempt=1)
            dead.close()
            async with open_run_manager(elsewhere, tmp_path, steps) as second:
                await steps.until("t1", "second", times=2)
                steps.let("t1")
                after = await ended(second, run)

        assert (after.status, after.attempt) == (RunStatus.SUCCESS, 3)
        assert steps.begun.count(("t1", "first")) == 1

    async def test_a_run_that_was_taken_over_stops_here(
        self, manager: RunManager, storage: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        other = OwnerLock(tmp_path / "owners")
        run = await manager.start(hello("t1"))
        await steps.until("t1", "first")

        await storage.runs.claim(run.id, owner=other.id, attempt=1)

        async with asyncio.timeout(60):
            while manager.in_progress:  # noqa: ASYNC110 - what is waited for is that nobody says a word
                await asyncio.sleep(0.01)
        taken = await storage.runs.get(run.id)
        assert (taken.status, taken.owner, taken.attempt) == (RunStatus.RUNNING, other.id, 2)
        other.close()

    async def test_a_run_that_nobody_drives_though_it_has_an_owner_goes_on(
        self, manager: RunManager, storage: Storage, steps: Steps
    ) -> None:
        steps.let("t1")
        steps.let("t2")
        mine = (await manager.start(hello("t2"))).owner
        assert mine is not None

        # As if the admission had been cut off between the row and its first step.
        lost = await storage.runs.create("lost", hello("t1"), owner=mine)

        after = await ended(manager, lost)
        assert (after.status, after.attempt) == (RunStatus.SUCCESS, 2)

    async def test_a_run_whose_database_was_away_goes_on_when_it_is_back(
        self, manager: RunManager, storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put, tries = storage.checkpoints.aput, []

        async def away_once(*args: Any) -> Any:
            tries.append(args)
            if len(tries) == 2:
                raise StorageAwayError("the database cannot be reached")
            return await put(*args)

        monkeypatch.setattr(storage.checkpoints, "aput", away_once)
        steps.let("t1")

        after = await ended(manager, await manager.start(hello("t1")))

        events = [event.kind async for batch in manager.subscribe(after.id) for event in batch]
        assert (after.status, after.attempt) == (RunStatus.SUCCESS, 2)
        assert "error" not in events
        assert events.count("end") == 1

    async def test_an_end_that_cannot_be_written_is_written_later_and_live_readers_see_it(
        self, manager: RunManager, storage: Storage, steps: Steps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle, tries = storage.runs.settle, []

        async def broken_once(*args: Any, **more: Any) -> Any:
            tries.append(args)
            if len(tries) == 1:
                raise ValueError("nobody expected this")
            return await settle(*args, **more)

        monkeypatch.setattr(storage.runs, "settle", broken_once)
        run = await manager.start(hello("t1"))
        seen: list[str] = []

        async def follow() -> None:
            async for batch in manager.subscribe(run.id):
                seen.extend(event.kind for event in batch)

        reader = asyncio.create_task(follow())
        await until(lambda: seen)
        steps.let("t1")
        async with asyncio.timeout(120):
            await reader

        assert (seen[0], seen[-1], seen.count("end")) == ("metadata", "end", 1)
        assert (await storage.runs.get(run.id)).status is RunStatus.SUCCESS

    async def test_a_run_that_loses_its_database_again_and_again_is_given_up(
        self, storage: Storage, tmp_path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def away(*args: Any) -> Any:
            raise StorageAwayError("the database cannot be reached")

        monkeypatch.setattr(storage.checkpoints, "aput", away)
        steps.let("t1")

        async with open_run_manager(storage, tmp_path, steps, max_attempts=2, lease_seconds=1) as manager:
            after = await ended(manager, await manager.start(hello("t1")))

        assert (after.status, after.stop_reason) == (RunStatus.ERROR, "TooManyAttempts")
        assert "could not be stored" in (after.error or "")

    async def test_a_run_that_was_deleted_while_it_waited_keeps_no_other_waiting(
        self, storage: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        other = OwnerLock(tmp_path / "owners")
        for thread in ("t1", "t2"):
            await storage.runs.create(f"before-{thread}", hello(thread), owner=other.id)
        steps.let("t2")
        async with open_run_manager(storage, tmp_path, steps, take_over=False) as manager:
            await manager.start(hello("t1", multitask_strategy=ENQUEUE))
            run = await manager.start(hello("t2", multitask_strategy=ENQUEUE))
            await storage.threads.delete("t1")
            await storage.runs.settle("before-t2", attempt=1, end=RunEnd(RunStatus.SUCCESS))

            after = await ended(manager, run)

        assert after.status is RunStatus.SUCCESS
        other.close()

    async def test_a_run_that_is_cut_off_from_within_is_not_taken_up_without_end(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        class CutOff(Steps):
            """As a library does that cancels a task which is not its own."""

            @override
            async def take(self, thread: str, step: str) -> None:
                for task in asyncio.all_tasks():
                    if task.get_name().startswith("run "):
                        task.cancel()
                await super().take(thread, step)

        steps = CutOff()
        async with open_run_manager(storage, tmp_path, steps, max_attempts=2, lease_seconds=1) as manager:
            after = await ended(manager, await manager.start(hello("t1")))

        assert (after.status, after.stop_reason) == (RunStatus.ERROR, "TooManyAttempts")
        assert steps.begun == [("t1", "first")] * 2

    @pytest.mark.parametrize("action", list(CancelAction))
    async def test_a_run_that_nobody_lives_to_stop_ends_all_the_same(
        self, storage: Storage, tmp_path: Path, steps: Steps, action: CancelAction
    ) -> None:
        dead = OwnerLock(tmp_path / "owners")
        run = await storage.runs.create("r1", hello("t1"), owner=dead.id)
        await storage.runs.request_cancel(run.id, action)
        await storage.runs.claim(run.id, owner=dead.id, attempt=1)
        dead.close()

        async with open_run_manager(storage, tmp_path, steps, max_attempts=1) as manager:
            after = await ended(manager, run)

        assert after.attempt == 3
        assert "aborted each time" in (after.error or "")
        is_undone = action is CancelAction.ROLLBACK
        assert after.status is (RunStatus.INTERRUPTED if is_undone else RunStatus.ERROR)
        assert steps.begun == []

    async def test_a_manager_that_closes_gives_back_what_it_never_started(
        self, storage: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        async with open_run_manager(storage, tmp_path, steps) as manager:
            steps.let("t2")
            mine = (await manager.start(hello("t2"))).owner
            await storage.runs.create("lost", hello("t1"), owner=mine)

        after = await storage.runs.get("lost")
        assert (after.status, after.owner) == (RunStatus.RUNNING, None)

    async def test_a_cancel_request_reaches_the_process_that_has_the_run(
        self, manager: RunManager, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        run = await manager.start(hello("t1"))
        await steps.until("t1", "first")

        async with open_run_manager(elsewhere, tmp_path, steps, capacity=0) as other:
            async with asyncio.timeout(60):  # it takes until the next heartbeat at the most
                after = await other.cancel(run.id, wait=True)

        assert after.status is RunStatus.INTERRUPTED

    async def test_a_rollback_from_elsewhere_puts_the_thread_back(
        self, manager: RunManager, storage: Storage, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        steps.let("t1", "first")
        run = await manager.start(hello("t1"))
        await steps.until("t1", "second")

        async with open_run_manager(elsewhere, tmp_path, steps, capacity=0) as other:
            after = await other.cancel(run.id, action=CancelAction.ROLLBACK, wait=True)

        assert (after.status, after.stop_reason) == (RunStatus.INTERRUPTED, "rolled_back")
        assert await storage.checkpoints.aget_tuple({"configurable": {"thread_id": "t1"}}) is None

    async def test_processes_that_take_turns_in_a_thread_keep_its_log_whole(
        self, storage: Storage, elsewhere: Storage, tmp_path: Path, steps: Steps
    ) -> None:
        steps.let("t1")
        async with (
            open_run_manager(storage, tmp_path, steps) as first,
            open_run_manager(elsewhere, tmp_path, steps) as second,
        ):
            runs = []
            for manager in (first, second, first, second, first):
                runs.append(await ended(manager, await manager.start(hello("t1"))))
            logs = [[event async for batch in second.subscribe(run.id) for event in batch] for run in runs]

        assert {run.status for run in runs} == {RunStatus.SUCCESS}
        assert [log[-1].kind for log in logs] == ["end"] * 5
        assert [log[-2].data.count(b"hello") for log in logs] == [1, 2, 3, 4, 5]

    async def test_of_many_that_want_a_run_one_gets_it(
        self, storage: Storage, elsewhere: Storage, tmp_path: Path
    ) -> None:
        run = await storage.runs.create("r1", hello("t1"))
        owners = [OwnerLock(tmp_path / "owners") for _ in range(10)]

        async def claim(number: int, owner: OwnerLock) -> bool:
            runs = (storage, elsewhere)[number % 2].runs
            try:
                await runs.claim(run.id, owner=owner.id, attempt=0)
            except StaleAttemptError:
                return False
            return True

        won = await asyncio.gather(*(claim(number, owner) for number, owner in enumerate(owners)))

        assert sum(won) == 1
        for owner in owners:
            owner.close()
