"""The event log of a run: what is stored when, and what readers see."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from langchain_core.messages import AIMessageChunk, AnyMessage, HumanMessage
from typing_extensions import override

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRecord, RunRequest, RunStatus, StreamEvent
from deerflow.errors import StaleAttemptError, StorageError
from deerflow.runtime.encoder import Known
from deerflow.runtime.event_log import RunLog, StreamBridge
from deerflow.runtime.serialization import to_json
from deerflow.storage import EventLog, LogBatch, LogEntry, RunEnd, Storage, open_storage

DONE = RunEnd(RunStatus.SUCCESS)


class FragileEvents(EventLog):
    """A real log that fails when told to: before it stores, or after, as a lost answer would."""

    def __init__(self, inner: EventLog) -> None:
        self.inner = inner
        self.failures: list[str] = []
        self.batches: list[LogBatch] = []
        self.gate: asyncio.Event | None = None
        self.answer_gate: asyncio.Event | None = None

    @override
    async def append(self, batch: LogBatch, *, is_urgent: bool = False) -> None:
        how = self.failures.pop(0) if self.failures else ""
        if self.gate is not None:
            await self.gate.wait()
        if how == "before":
            raise StorageError("the disk is full")
        await self.inner.append(batch, is_urgent=is_urgent)
        self.batches.append(batch)
        if self.answer_gate is not None:
            await self.answer_gate.wait()
        if how == "after":
            raise StorageError("the answer got lost")

    @override
    async def read(self, run_id: str, *, after_seq: int = -1, limit: int = 1000) -> list[LogEntry]:
        return await self.inner.read(run_id, after_seq=after_seq, limit=limit)

    @override
    async def last_seq(self, run_id: str) -> int:
        return await self.inner.last_seq(run_id)

    @override
    async def newest_fragment(self, thread_id: str) -> tuple[int, bytes]:
        return await self.inner.newest_fragment(thread_id)

    @override
    async def digests(self, thread_id: str) -> dict[bytes, int]:
        return await self.inner.digests(thread_id)

    @override
    async def fragments(self, thread_id: str, numbers: Sequence[int]) -> dict[int, bytes]:
        return await self.inner.fragments(thread_id, numbers)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(backend="memory"), Paths(tmp_path)) as storage:
        yield storage


@pytest.fixture
def events(storage: Storage) -> FragileEvents:
    return FragileEvents(storage.events)


@pytest.fixture
async def run(storage: Storage) -> RunRecord:
    return await storage.runs.create("r1", RunRequest("t1"), owner="me")


@pytest.fixture
def lost() -> "asyncio.Queue[str]":
    return asyncio.Queue()


@pytest.fixture
def log(
    events: FragileEvents, run: RunRecord, lost: "asyncio.Queue[str]", monkeypatch: pytest.MonkeyPatch
) -> RunLog:
    monkeypatch.setattr("deerflow.runtime.event_log._RETRY_SECONDS", 0.01)
    return RunLog(run, events=events, flush_seconds=0.001, on_lost=lost.put_nowait)


async def settled(storage: Storage, log: RunLog, *, attempt: int = 1) -> None:
    await log.end(lambda last: storage.runs.settle("r1", attempt=attempt, end=DONE, last=last))


async def until_stored(events: FragileEvents, last_seq: int) -> None:
    async with asyncio.timeout(60):
        while await events.last_seq("r1") < last_seq:  # noqa: ASYNC110 - the database sends no word
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("failures", [["before"], ["after"], ["before", "after", "before", "after"]])
async def test_what_could_not_be_stored_is_stored_later_once_and_in_order(
    log: RunLog,
    events: FragileEvents,
    storage: Storage,
    failures: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    events.failures = list(failures)
    caplog.set_level(logging.WARNING)

    for number in range(3):
        log.publish("values", {"messages": [HumanMessage(f"message {number}", id=str(number))]})
    await until_stored(events, 2)
    log.publish("values", {"messages": [HumanMessage("message 3", id="3")]})
    await settled(storage, log)

    stored = await storage.events.read("r1")
    assert [(entry.seq, entry.kind) for entry in stored] == [
        (0, "values"),
        (1, "values"),
        (2, "values"),
        (3, "values"),
        (4, "end"),
    ]
    assert sorted((await storage.events.digests("t1")).values()) == [1, 2, 3, 4]
    assert any("could not be stored, trying again" in line for line in caplog.messages)


async def test_nobody_sees_what_is_not_stored(log: RunLog, events: FragileEvents, storage: Storage) -> None:
    events.gate = asyncio.Event()
    log.publish("custom", 0)
    waiting = asyncio.create_task(log.wait(60))
    await asyncio.sleep(0.01)
    before = (log.after(-1), log.next_seq, waiting.done())

    events.gate.set()
    await waiting
    after = [event.seq for event in log.after(-1)]
    stored = await events.last_seq("r1")
    await settled(storage, log)

    assert before == ([], 0, False)
    assert (after, stored) == ([0], 0)


async def test_events_published_while_storing_go_with_the_next_batch(
    log: RunLog, events: FragileEvents, storage: Storage
) -> None:
    events.gate = asyncio.Event()
    log.publish("custom", 0)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.publish("custom", 1)
    events.gate.set()
    await flushing
    await log.flush()

    assert [[entry.seq for entry in batch.entries] for batch in events.batches] == [[0], [1]]
    await log.abandon()


async def test_a_flush_that_is_cancelled_loses_no_fragment(
    log: RunLog, events: FragileEvents, storage: Storage
) -> None:
    events.gate = asyncio.Event()
    log.publish("values", [HumanMessage("one", id="1")])
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    events.gate.set()
    await settled(storage, log)

    assert sorted((await storage.events.digests("t1")).values()) == [1]


async def test_the_end_is_stored_with_the_run_or_not_at_all(
    log: RunLog, events: FragileEvents, storage: Storage
) -> None:
    log.publish("custom", 0)

    async def refuse(last: LogBatch) -> None:
        raise StorageError("the disk is full")

    with pytest.raises(StorageError):
        await log.end(refuse)
    assert [event.kind for event in log.after(-1)] == []
    assert not log.is_closed

    await settled(storage, log)
    assert (await storage.runs.get("r1")).status is RunStatus.SUCCESS
    assert [entry.kind for entry in await storage.events.read("r1")] == ["custom", "end"]
    assert [event.kind for event in log.after(-1)] == ["custom", "end"]


async def test_whoever_speaks_after_the_end_is_not_heard(log: RunLog, storage: Storage) -> None:
    log.publish("custom", 0)

    async def settle(last: LogBatch) -> None:
        log.publish("custom", "while it ends")
        await storage.runs.settle("r1", attempt=1, end=DONE, last=last)

    await log.end(settle)
    log.publish("custom", "after the end")

    assert [event.kind for event in log.after(-1)] == ["custom", "end"]
    assert [entry.seq for entry in await storage.events.read("r1")] == [0, 1]


async def test_an_attempt_that_was_overtaken_stops(
    log: RunLog, events: FragileEvents, storage: Storage, lost: "asyncio.Queue[str]"
) -> None:
    await storage.runs.claim("r1", owner="other", attempt=1)

    log.publish("custom", 0)
    async with asyncio.timeout(60):
        assert await lost.get() == "r1"

    assert await storage.events.read("r1") == []
    with pytest.raises(StaleAttemptError):
        await settled(storage, log)
    await log.abandon()


async def test_a_waiting_reader_wakes_for_an_event_and_when_its_time_is_up(log: RunLog) -> None:
    waiting = asyncio.create_task(log.wait(60))
    await asyncio.sleep(0)
    log.publish("custom", 0)

    async with asyncio.timeout(60):
        await waiting
        await log.wait(0.001)
    await log.abandon()


async def test_a_new_attempt_numbers_behind_the_gap(log: RunLog) -> None:
    log.begin(first_seq=10_007, known=Known({}))
    log.publish("custom", 0)
    await log.flush()

    assert [event.seq for event in log.after(-1)] == [10_007]
    assert log.next_seq == 10_008
    assert (log.holds_after(10_006), log.holds_after(10_005)) == (True, False)
    await log.abandon()


@pytest.fixture
def slow_log(events: FragileEvents, run: RunRecord) -> RunLog:
    """Store text so seldom that a test would time out if it had to wait for it."""
    return RunLog(run, events=events, flush_seconds=600, on_lost=lambda _: None)


async def test_the_first_text_is_shown_at_once_and_what_follows_closely_with_the_next_event(
    slow_log: RunLog,
) -> None:
    log = slow_log
    log.publish("metadata", {})
    log.publish_chunk("messages", AIMessageChunk("one"), {})
    await _until(log, 2)
    for _ in range(100):
        log.publish_chunk("messages", AIMessageChunk("more"), {})
    await asyncio.sleep(0.05)
    seen_in_between = log.next_seq
    await log.abandon()

    assert seen_in_between == 2
    assert log.next_seq == 102


async def test_text_after_something_else_does_not_wait_for_text_before_it(slow_log: RunLog) -> None:
    log = slow_log
    log.publish_chunk("messages", AIMessageChunk("one"), {})
    await _until(log, 1)
    log.publish("updates", {"model": {}})
    log.publish_chunk("messages", AIMessageChunk("the next step"), {})
    await _until(log, 3)
    await log.abandon()


async def test_a_flood_of_text_is_stored_and_shown_in_few_pieces(
    events: FragileEvents, run: RunRecord
) -> None:
    log = RunLog(run, events=events, flush_seconds=0.05, on_lost=lambda _: None)
    for _ in range(200):
        log.publish_chunk("messages", AIMessageChunk("more"), {})
        await asyncio.sleep(0)
    await _until(log, 200)
    await log.abandon()

    assert len(events.batches) < 100


async def _until(log: RunLog, count: int) -> None:
    async with asyncio.timeout(60):
        while log.next_seq < count:
            await log.wait(60)


async def test_a_reader_gets_no_more_at_once_than_a_connection_should_hold(log: RunLog) -> None:
    for number in range(5):
        log.publish("values", {"text": "x" * 200_000, "number": number})
    await log.flush()

    sizes, seq = [], -1
    while batch := log.after(seq):
        sizes.append(len(batch))
        seq = batch[-1].seq

    assert sizes == [2, 2, 1]
    assert seq == 4


async def test_a_long_log_stays_in_memory_in_part_and_reaches_slow_and_late_readers_whole(
    storage: Storage, run: RunRecord
) -> None:
    bridge = StreamBridge(events=storage.events, runs=storage.runs, signals=storage.signals, kept_bytes=2000)
    log = bridge.open(run, on_lost=lambda _: None)
    await bridge.begin(log, run)
    slow = bridge.subscribe(run.id)
    log.publish("custom", {"step": 0})
    await log.flush()
    seen = await anext(slow)

    for step in range(1, 1000):
        log.publish("custom", {"step": step})
        await log.flush()
    held = [log.holds_after(log.next_seq - events) for events in (100, 500, 1000)]
    late = bridge.subscribe(run.id)
    seen_late = await anext(late)
    await bridge.publish_end(log, lambda last: storage.runs.settle("r1", attempt=1, end=DONE, last=last))
    for reader, told in ((slow, seen), (late, seen_late)):
        async for batch in reader:
            told += batch

    assert (held, log.count) == ([True, False, False], 1001)
    for told in (seen, seen_late):
        assert [event.seq for event in told] == list(range(1001))
        assert told[999].data == b'{"step":999}'


DONE = RunEnd(RunStatus.SUCCESS)
MESSAGES: list[AnyMessage] = [HumanMessage(f"message {number}", id=str(number)) for number in range(20)]


@pytest.fixture
def looks(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the threads whose fragments were looked up in the database."""
    looks: list[str] = []
    digests = storage.events.digests

    async def noted(thread_id: str) -> dict[bytes, int]:
        looks.append(thread_id)
        return await digests(thread_id)

    monkeypatch.setattr(storage.events, "digests", noted)
    return looks


def opened(storage: Storage, *, cached_bytes: int = 1_000_000) -> StreamBridge:
    return StreamBridge(
        events=storage.events, runs=storage.runs, signals=storage.signals, cached_bytes=cached_bytes
    )


async def said(bridge: StreamBridge, storage: Storage, run_id: str, messages: list[AnyMessage]) -> bytes:
    """Let a run of a thread of its own name say `messages`; return its state as a reader gets it."""
    run = await storage.runs.create(run_id, RunRequest(run_id[:2]), owner="me")
    log = bridge.open(run, on_lost=lambda _: None)
    await bridge.begin(log, run)
    log.publish("values", {"messages": messages})
    await bridge.publish_end(log, lambda last: storage.runs.settle(run_id, attempt=1, end=DONE, last=last))
    events: list[StreamEvent] = [event async for batch in bridge.subscribe(run_id) for event in batch]
    return events[0].data


async def test_the_next_run_of_a_thread_stores_and_looks_up_nothing_again(
    storage: Storage, looks: list[str]
) -> None:
    bridge = opened(storage)
    await said(bridge, storage, "t1-1", MESSAGES)

    data = await said(bridge, storage, "t1-2", [message.model_copy() for message in MESSAGES])

    assert data == to_json({"messages": MESSAGES})
    assert looks == ["t1"]
    assert (await storage.events.newest_fragment("t1"))[0] == len(MESSAGES)


async def test_what_another_process_added_to_a_thread_is_looked_up(
    storage: Storage, looks: list[str]
) -> None:
    here, elsewhere = opened(storage), opened(storage)
    await said(here, storage, "t1-1", MESSAGES[:10])
    await said(elsewhere, storage, "t1-2", MESSAGES)
    changed: list[AnyMessage] = [HumanMessage("changed", id="0"), *MESSAGES[1:]]

    data = await said(here, storage, "t1-3", changed)

    assert data == to_json({"messages": changed})
    assert looks == ["t1"] * 3
    assert (await storage.events.newest_fragment("t1"))[0] == len(MESSAGES) + 1


async def test_a_thread_that_began_anew_elsewhere_is_not_taken_for_the_old_one(storage: Storage) -> None:
    here, elsewhere = opened(storage), opened(storage)
    await said(here, storage, "t1-1", MESSAGES[:10])
    await storage.threads.delete("t1")
    await said(elsewhere, storage, "t1-2", MESSAGES[10:])  # as many of them, with the same numbers

    data = await said(here, storage, "t1-3", MESSAGES[:10])

    assert data == to_json({"messages": MESSAGES[:10]})


async def test_a_log_that_is_given_up_late_leaves_the_one_of_the_next_attempt_alone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = opened(storage)
    first = await storage.runs.create("t1-1", RunRequest("t1"), owner="me")
    old = bridge.open(first, on_lost=lambda _: None)
    await bridge.begin(old, first)
    second = await storage.runs.claim("t1-1", owner="me", attempt=1)
    new = bridge.open(second, on_lost=lambda _: None)
    await bridge.begin(new, second)
    new.publish("custom", {"type": "note"})
    await new.flush()

    await bridge.abandon(old)
    monkeypatch.setattr(storage.events, "read", None)  # what is live is not read from the database
    reader = bridge.subscribe("t1-1", after_seq=new.next_seq - 2)
    events = await anext(aiter(reader))

    assert [event.kind for event in events] == ["custom"]
    await bridge.abandon(new)


async def test_a_reader_that_is_ahead_of_the_log_in_memory_gets_nothing_again(
    storage: Storage, events: FragileEvents
) -> None:
    bridge = StreamBridge(events=events, runs=storage.runs, signals=storage.signals, heartbeat_seconds=0.05)
    run = await storage.runs.create("t1-1", RunRequest("t1"), owner="me")
    log = bridge.open(run, on_lost=lambda _: None)
    await bridge.begin(log, run)
    events.answer_gate = asyncio.Event()
    log.publish("custom", 0)
    storing = asyncio.create_task(log.flush())
    async with asyncio.timeout(60):
        while not events.batches:  # noqa: ASYNC110 - the database sends no word
            await asyncio.sleep(0.001)
    assert log.next_seq == 0, "the batch is stored, and the log in memory does not know yet"

    reader = aiter(bridge.subscribe("t1-1", after_seq=0))
    assert await anext(reader) == [], "nothing is new"
    events.answer_gate.set()
    await storing
    log.publish("custom", 1)
    async with asyncio.timeout(60):
        while not (batch := await anext(reader)):
            pass

    assert [event.seq for event in batch] == [1]
    await bridge.abandon(log)


async def test_a_reader_of_a_run_that_another_process_took_over_gets_nothing_again(storage: Storage) -> None:
    here, elsewhere = opened(storage), opened(storage)
    first = await storage.runs.create("t1-1", RunRequest("t1"), owner="me")
    stale = here.open(first, on_lost=lambda _: None)
    await here.begin(stale, first)
    second = await storage.runs.claim("t1-1", owner="you", attempt=1)
    log = elsewhere.open(second, on_lost=lambda _: None)
    await elsewhere.begin(log, second)
    log.publish("custom", 0)
    log.publish("custom", 1)
    await log.flush()

    reader = aiter(here.subscribe("t1-1", after_seq=log.next_seq - 2))

    assert [event.seq for event in await anext(reader)] == [log.next_seq - 1]
    await here.abandon(stale)
    await elsewhere.abandon(log)


async def test_of_too_many_threads_the_oldest_are_not_remembered(storage: Storage, looks: list[str]) -> None:
    bridge = opened(storage, cached_bytes=120_000)
    for thread in ("t1", "t2", "t3", "t4"):
        await said(bridge, storage, f"{thread}-1", MESSAGES)
    looks.clear()

    for thread in ("t4", "t1"):
        await said(bridge, storage, f"{thread}-2", MESSAGES)

    assert looks == ["t1"]


async def test_a_thread_with_more_than_may_be_remembered_goes_on_all_the_same(
    storage: Storage, looks: list[str]
) -> None:
    bridge = opened(storage, cached_bytes=100)
    await said(bridge, storage, "t1-1", MESSAGES)

    data = await said(bridge, storage, "t1-2", MESSAGES)

    assert data == to_json({"messages": MESSAGES})
    assert looks == ["t1", "t1"]
