"""How the runs of one thread wait for each other, and what is put back: the same for every database."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance.test_utils import (
    generate_checkpoint,
    generate_config,
    generate_metadata,
)

from deerflow.domain import (
    CancelAction,
    MultitaskStrategy,
    RunRecord,
    RunRequest,
    RunStatus,
    SkillUse,
    ThreadStatus,
)
from deerflow.errors import ConflictError, NotFoundError, StaleAttemptError, StorageError, ThreadBusyError
from deerflow.storage import EffectState, OwnerLock, RunEnd, RunStore, Storage, run_queue

DONE = RunEnd(RunStatus.SUCCESS)
ENQUEUE, INTERRUPT, ROLLBACK = (
    MultitaskStrategy.ENQUEUE,
    MultitaskStrategy.INTERRUPT,
    MultitaskStrategy.ROLLBACK,
)


async def admit(
    storage: Storage,
    run: str,
    strategy: MultitaskStrategy = MultitaskStrategy.REJECT,
    *,
    thread: str = "t1",
    after_seconds: float | None = None,
    key: str | None = None,
    user: str = "ann",
) -> RunRecord:
    request = RunRequest(
        thread,
        user_id=user,
        multitask_strategy=strategy,
        after_seconds=after_seconds,
        idempotency_key=key,
    )
    return await storage.runs.create(run, request, owner="me")


class QueueContract:
    """Strategies, order, delays, retries and rollback."""

    async def test_enqueued_runs_start_one_at_a_time_in_the_order_of_their_admission(
        self, storage: Storage
    ) -> None:
        await admit(storage, "r0")
        waiting = await asyncio.gather(*(admit(storage, f"r{number}", ENQUEUE) for number in range(1, 51)))
        assert {run.status for run in waiting} == {RunStatus.PENDING}
        assert await storage.runs.claim_next("t1", owner="me") is None
        admitted = [run.id for run in reversed(await storage.runs.of_thread("t1"))]

        order = ["r0"]
        for _ in range(50):
            await storage.runs.settle(order[-1], attempt=1, end=DONE)
            claimed = await storage.runs.claim_next("t1", owner="me")
            assert claimed is not None
            assert (claimed.status, claimed.attempt) == (RunStatus.RUNNING, 1)
            order.append(claimed.id)

        assert order == admitted
        await storage.runs.settle(order[-1], attempt=1, end=DONE)
        assert await storage.runs.claim_next("t1", owner="me") is None
        assert (await storage.threads.get("t1")).status is ThreadStatus.IDLE

    async def test_a_clock_that_is_set_back_keeps_the_queue_order(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await admit(storage, "r1")
        await admit(storage, "r2", ENQUEUE)
        an_hour_ago = run_queue.now_us() - 3_600_000_000
        monkeypatch.setattr(run_queue, "now_us", lambda: an_hour_ago)
        for run in ("r3", "r4"):
            await admit(storage, run, ENQUEUE)
        monkeypatch.undo()

        order = []
        for run in ("r1", "r2", "r3"):
            await storage.runs.settle(run, attempt=1, end=DONE)
            claimed = await storage.runs.claim_next("t1", owner="me")
            order.append(claimed.id if claimed else None)

        assert order == ["r2", "r3", "r4"]

    async def test_a_clock_that_is_set_back_delays_a_run_no_longer_than_requested(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await admit(storage, "r1")
        an_hour_ago = run_queue.now_us() - 3_600_000_000
        monkeypatch.setattr(run_queue, "now_us", lambda: an_hour_ago)

        await admit(storage, "r2", ENQUEUE, after_seconds=1)
        await storage.runs.settle("r1", attempt=1, end=DONE)
        monkeypatch.setattr(run_queue, "now_us", lambda: an_hour_ago + 1_000_000)
        claimed = await storage.runs.claim_next("t1", owner="me")

        assert claimed is not None
        assert claimed.id == "r2"

    async def test_a_busy_thread_is_not_deleted_with_unless_busy(self, storage: Storage) -> None:
        await admit(storage, "r1")
        await admit(storage, "r2", ENQUEUE)

        with pytest.raises(ConflictError, match="cancel it first"):
            await storage.threads.delete("t1", unless_busy=True)
        await storage.runs.settle("r1", attempt=1, end=DONE)
        with pytest.raises(ConflictError):
            await storage.threads.delete("t1", unless_busy=True)
        await storage.runs.request_cancel("r2", CancelAction.INTERRUPT)
        await storage.threads.delete("t1", unless_busy=True)

        with pytest.raises(NotFoundError):
            await storage.runs.get("r1")

    async def test_a_pending_run_cannot_be_claimed_while_another_runs(self, storage: Storage) -> None:
        await admit(storage, "r1")
        await admit(storage, "r2", ENQUEUE)

        with pytest.raises(StaleAttemptError):
            await storage.runs.claim("r2", owner="me", attempt=0)

    async def test_only_the_first_run_of_a_free_thread_is_dispatched(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        lock = OwnerLock(tmp_path / "owners")
        await storage.runs.create("r1", RunRequest("t1"), owner=lock.id)
        for run in ("r2", "r3"):
            await storage.runs.create(run, RunRequest("t1", multitask_strategy=ENQUEUE), owner=lock.id)
        assert await storage.runs.orphans(lock) == []

        await storage.runs.settle("r1", attempt=1, end=DONE)

        assert [run.id for run in await storage.runs.orphans(lock)] == ["r2"]
        lock.close()

    @pytest.mark.parametrize("damage", [b"no json", b"[]", b"{}", b"\x78\xf9\x00\x00\x00\x01"])
    async def test_an_unreadable_run_does_not_block_others(
        self, storage: Storage, tmp_path: Path, damage: bytes
    ) -> None:
        lock = OwnerLock(tmp_path / "owners")
        for run in ("r1", "r2", "r3"):
            await storage.runs.create(run, RunRequest(f"thread-of-{run}"))
        await self.spoil(storage, "r2", damage)

        waiting = await storage.runs.orphans(lock)
        active = await storage.runs.active()

        assert [run.id for run in waiting] == [run.id for run in active] == ["r1", "r3"]
        assert await storage.runs.of_thread("thread-of-r2") == []
        with pytest.raises(StorageError, match="run r2 cannot be read"):
            await storage.runs.get("r2")
        lock.close()

    @staticmethod
    async def spoil(storage: Storage, run: str, damage: bytes) -> None:
        """Write something else where a run's request was."""
        assert isinstance(storage.runs, RunStore)
        await storage.runs._engine.write(
            lambda db: db.execute("UPDATE runs SET request = ? WHERE id = ?", (damage, run)) and None
        )

    @pytest.mark.parametrize("strategy", [INTERRUPT, ROLLBACK])
    async def test_a_new_run_cancels_the_running_one_and_ends_pending_ones(
        self, storage: Storage, strategy: MultitaskStrategy
    ) -> None:
        await admit(storage, "r1")
        await admit(storage, "r2", ENQUEUE)

        new = await admit(storage, "r3", strategy)

        assert new.status is RunStatus.PENDING
        assert await storage.runs.cancel_requests("me") == {"r1": CancelAction(strategy)}
        ended = await storage.runs.get("r2")
        assert (ended.status, ended.stop_reason) == (RunStatus.INTERRUPTED, "cancelled_before_start")
        await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.INTERRUPTED, rolls_back=True))
        claimed = await storage.runs.claim_next("t1", owner="me")
        assert claimed is not None
        assert claimed.id == "r3"

    async def test_a_delayed_run_blocks_no_other_before_its_start_time(self, storage: Storage) -> None:
        delayed = await admit(storage, "later", after_seconds=3600)
        soon = await admit(storage, "soon", ENQUEUE, after_seconds=0.001)
        assert (delayed.status, soon.status) == (RunStatus.PENDING, RunStatus.PENDING)
        assert (await storage.threads.get("t1")).status is ThreadStatus.IDLE
        await asyncio.sleep(0.002)

        with pytest.raises(ThreadBusyError) as caught:
            await admit(storage, "now")
        claimed = await storage.runs.claim_next("t1", owner="me")
        await storage.runs.settle("soon", attempt=1, end=DONE)

        assert caught.value.run_id == "soon"
        assert claimed is not None
        assert claimed.id == "soon"
        assert (await storage.threads.get("t1")).status is ThreadStatus.IDLE
        assert await storage.runs.claim_next("t1", owner="me") is None
        assert (await admit(storage, "now")).status is RunStatus.RUNNING

    async def test_a_pending_run_is_cancelled_at_once(self, storage: Storage) -> None:
        await admit(storage, "r1")
        await admit(storage, "r2", ENQUEUE)

        cancelled = await storage.runs.request_cancel("r2", CancelAction.ROLLBACK)
        later = await admit(storage, "r3", thread="t2", after_seconds=60)
        await storage.runs.request_cancel(later.id, CancelAction.INTERRUPT)

        assert cancelled.status is RunStatus.INTERRUPTED
        assert (await storage.threads.get("t1")).status is ThreadStatus.BUSY
        assert (await storage.threads.get("t2")).status is ThreadStatus.IDLE

    async def test_a_repeated_idempotency_key_returns_its_run(self, storage: Storage) -> None:
        first, *others = await asyncio.gather(
            *(admit(storage, f"r{number}", thread=f"t{number}", key="k") for number in range(20))
        )
        stranger = await admit(storage, "s1", thread="s", key="k", user="bob")
        await storage.runs.settle(first.id, attempt=1, end=DONE)
        late = await admit(storage, "r99", thread="t99", key="k")

        assert {run.id for run in others} == {first.id}
        assert stranger.id == "s1"
        assert (late.id, late.status) == (first.id, RunStatus.SUCCESS)
        with pytest.raises(NotFoundError):
            await storage.threads.get("t99")

    async def test_a_title_is_stored_with_the_end_of_its_run_and_not_by_a_stale_attempt(
        self, storage: Storage
    ) -> None:
        run = await admit(storage, "r1")
        await storage.runs.claim(run.id, owner="there", attempt=1)

        with pytest.raises(StaleAttemptError):
            await storage.runs.settle(run.id, attempt=1, end=RunEnd(RunStatus.SUCCESS, title="Stale"))
        await storage.runs.settle(run.id, attempt=2, end=RunEnd(RunStatus.SUCCESS, title="Right\0"))

        assert (await storage.threads.get("t1")).title == "Right\ufffd"

    async def test_a_run_knows_the_skills_that_its_attempt_used(self, storage: Storage) -> None:
        run = await admit(storage, "r1")
        chart, notes = SkillUse("chart", "d1", "1.0", "slash"), SkillUse("notes", "d2")

        await storage.runs.add_skills(run.id, attempt=1, used=[chart])
        await storage.runs.add_skills(run.id, attempt=1, used=[notes, replace(chart, activated_by="read")])
        await storage.runs.add_skills(run.id, attempt=0, used=[SkillUse("stale", "d3")])

        assert run.skills == ()
        assert (await storage.runs.get(run.id)).skills == (chart, notes)

    async def test_a_rollback_restores_checkpoints_and_title(self, storage: Storage) -> None:
        await admit(storage, "r1")
        config = generate_config("t1")
        await storage.checkpoints.aput(config, generate_checkpoint(), generate_metadata(), {})
        await storage.threads.update("t1", title="Before")
        end = RunEnd(RunStatus.ERROR, ThreadStatus.ERROR)
        await storage.runs.settle("r1", attempt=1, end=end)
        head = await storage.checkpoints.aget_tuple(config)
        await admit(storage, "r2")
        await storage.checkpoints.aput(config, generate_checkpoint(), generate_metadata(), {})
        await storage.checkpoints.aput(
            generate_config("t1/call"), generate_checkpoint(), generate_metadata(), {}
        )
        await storage.threads.update("t1", title="After")

        await storage.runs.settle("r2", attempt=1, end=RunEnd(RunStatus.INTERRUPTED, rolls_back=True))

        thread = await storage.threads.get("t1")
        assert (thread.title, thread.status) == ("Before", ThreadStatus.ERROR)
        assert await storage.checkpoints.aget_tuple(config) == head
        assert await storage.checkpoints.aget_tuple(generate_config("t1/call")) is None

    async def test_a_thread_that_is_renamed_during_a_rollback_keeps_its_interrupts(
        self, storage: Storage
    ) -> None:
        await admit(storage, "r1")
        await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.SUCCESS, asks=True))
        await admit(storage, "r2")

        during = await storage.threads.update("t1", metadata={"pinned": True})
        await storage.runs.settle("r2", attempt=1, end=RunEnd(RunStatus.INTERRUPTED, rolls_back=True))
        after = await storage.threads.get("t1")

        assert (during.asks, after.asks) == (False, True)
        assert (await storage.threads.update("t1", asks=False)).asks is False

    async def test_a_thread_keeps_its_interrupts_when_other_runs_are_cancelled(
        self, storage: Storage
    ) -> None:
        asked = {"task": [{"id": "q1", "value": {"hash": "h", "said": "\x00 and ä"}}]}
        end = RunEnd(RunStatus.SUCCESS, ThreadStatus.INTERRUPTED, interrupts=asked)
        seen = []
        await admit(storage, "r1")
        await admit(storage, "r2", ENQUEUE)
        await storage.runs.settle("r1", attempt=1, end=end)
        seen.append(await storage.threads.get("t1"))

        await storage.runs.request_cancel("r2", CancelAction.INTERRUPT)
        seen.append(await storage.threads.get("t1"))
        await admit(storage, "r3", after_seconds=3600)
        await storage.runs.request_cancel("r3", CancelAction.INTERRUPT)
        seen.append(await storage.threads.get("t1"))
        await admit(storage, "r4")
        await storage.runs.settle("r4", attempt=1, end=RunEnd(RunStatus.INTERRUPTED, rolls_back=True))
        seen.append(await storage.threads.get("t1"))
        await admit(storage, "r5")
        await storage.runs.settle("r5", attempt=1, end=DONE)
        seen.append(await storage.threads.get("t1"))

        busy, waiting, idle = ThreadStatus.BUSY, ThreadStatus.INTERRUPTED, ThreadStatus.IDLE
        assert [thread.status for thread in seen] == [busy, waiting, waiting, waiting, idle]
        assert [thread.interrupts for thread in seen] == [{}, asked, asked, asked, {}]

    async def test_a_released_run_may_be_claimed_and_counts_the_release(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        lock = OwnerLock(tmp_path / "owners")
        await storage.runs.create("r1", RunRequest("t1"), owner=lock.id)

        await storage.runs.release("r1", attempt=7)
        assert await storage.runs.orphans(lock) == []
        await storage.runs.release("r1", attempt=1)

        (orphan,) = await storage.runs.orphans(lock)
        claimed = await storage.runs.claim("r1", owner="you", attempt=1)
        assert (orphan.id, claimed.attempt, claimed.releases) == ("r1", 2, 1)
        lock.close()

    async def test_a_tool_call_of_an_earlier_attempt_is_known_once(self, storage: Storage) -> None:
        await admit(storage, "r1")
        for call in (b"begun", b"done"):
            assert await storage.effects.start("r1", attempt=1, call=call) is None
        storage.effects.finish("r1", attempt=1, call=b"done")
        assert await storage.effects.start("r1", attempt=1, call=b"done") is None
        storage.effects.finish("r1", attempt=1, call=b"done")
        await storage.runs.claim("r1", owner="you", attempt=1)

        found = [await storage.effects.start("r1", attempt=2, call=call) for call in (b"begun", b"done")]

        assert found == [EffectState.STARTED, EffectState.FINISHED]
        assert await storage.effects.start("r1", attempt=2, call=b"begun") is None
        assert await storage.effects.start("r1", attempt=2, call=b"new") is None
        with pytest.raises(StaleAttemptError):
            await storage.effects.start("r1", attempt=1, call=b"zombie")
