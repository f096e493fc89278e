"""Signals wake those who wait, whichever thread they come from, and never too early to count."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import CancelAction, MultitaskStrategy, RunRequest, RunStatus
from deerflow.storage import (
    QUEUE,
    LogBatch,
    LogEntry,
    RunEnd,
    Signals,
    Storage,
    open_storage,
    owner_topic,
    run_topic,
    thread_topic,
)


async def test_a_signal_between_watching_and_waiting_counts() -> None:
    signals = Signals()

    with signals.watch("a") as watch:
        signals.notify(["b", "a"])
        assert await watch.wait(30)
        assert not await watch.wait(0.01)
        signals.notify(["a"])
        signals.notify(["a"])
        assert await watch.wait(30)
        assert not await watch.wait(0.01)


async def test_signals_from_any_thread_reach_every_watch() -> None:
    signals = Signals()

    with signals.watch("a") as first, signals.watch("a") as second, signals.watch("b") as other:
        await asyncio.to_thread(signals.notify, ["a"])
        assert await first.wait(30)
        assert await second.wait(30)
        assert not await other.wait(0.01)
        await asyncio.to_thread(signals.notify_all)
        assert await other.wait(30)


async def test_a_closed_loop_is_ignored() -> None:
    signals = Signals()

    def elsewhere() -> None:
        loop = asyncio.new_event_loop()
        waiting = asyncio.Event()

        async def wait() -> None:
            with signals.watch("a") as watch:
                waiting.set()
                await watch.wait(60)

        task = loop.create_task(wait())
        loop.run_until_complete(waiting.wait())
        task.cancel()
        loop.close()

    with signals.watch("a") as watch:
        await asyncio.to_thread(elsewhere)
        signals.notify(["a"])
        assert await watch.wait(30)


@pytest.mark.parametrize("name", ["x" * 100_000, "a\x00b", "\ud800", "line\nbreak"])
def test_unusual_names_become_topics_that_fit_a_notification(name: str) -> None:
    topic = run_topic(name)

    assert topic == run_topic(name)
    assert topic != owner_topic(name)
    assert len(topic.encode()) < 1000
    assert topic.isprintable()


class SignalContract:
    """What the stores signal, the same on every database; a subclass supplies `storage`."""

    async def test_a_run_signals_its_events_and_its_end(self, storage: Storage) -> None:
        with (
            storage.signals.watch(thread_topic("t1")) as thread,
            storage.signals.watch(run_topic("r1")) as run,
            storage.signals.watch(owner_topic("me")) as owner,
            storage.signals.watch(QUEUE) as queue,
        ):
            await storage.runs.create("r1", RunRequest("t1"), owner="me")
            assert await thread.wait(30)
            await storage.events.append(LogBatch("r1", "t1", 1, [LogEntry(0, 0, "values", b"1")]))
            assert await run.wait(30)
            assert not await owner.wait(0.01)
            await storage.runs.request_cancel("r1", CancelAction.INTERRUPT)
            assert await owner.wait(30)
            assert not await queue.wait(0.01)
            await storage.runs.release("r1", attempt=1)
            assert await queue.wait(30)
            await run.wait(0.01)
            await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.SUCCESS))
            assert await run.wait(30)

    async def test_a_run_without_an_owner_signals_the_queue(self, storage: Storage) -> None:
        with storage.signals.watch(QUEUE) as queue, storage.signals.watch(run_topic("r3")) as third:
            await storage.runs.create("r1", RunRequest("t1"))
            assert await queue.wait(30)
            await storage.runs.claim("r1", owner="me", attempt=0)
            enqueue = RunRequest("t1", multitask_strategy=MultitaskStrategy.ENQUEUE)
            await storage.runs.create("r2", enqueue)
            await storage.runs.create("r3", enqueue)
            assert not await queue.wait(0.01)
            await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.SUCCESS))
            assert await queue.wait(30)
            await storage.runs.request_cancel("r2", CancelAction.INTERRUPT)
            assert await queue.wait(30)
            await storage.runs.request_cancel("r3", CancelAction.INTERRUPT)
            assert await third.wait(30)
            assert not await queue.wait(0.01)


class TestSqliteSignals(SignalContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
            assert not storage.signals.is_connected
            yield storage
