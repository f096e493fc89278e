"""What a bridge remembers of a thread from one run to the next is quick to use, true and bounded."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import AnyMessage, HumanMessage

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest, RunStatus, StreamEvent
from deerflow.runtime.serialization import to_json
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.storage import RunEnd, Storage, open_storage

DONE = RunEnd(RunStatus.SUCCESS)
MESSAGES: list[AnyMessage] = [HumanMessage(f"message {number}", id=str(number)) for number in range(20)]


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(backend="memory"), Paths(tmp_path)) as storage:
        yield storage


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


def opened(storage: Storage, *, known_bytes: int = 1_000_000) -> StreamBridge:
    return StreamBridge(
        events=storage.events, runs=storage.runs, signals=storage.signals, known_bytes=known_bytes
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


async def test_of_too_many_threads_the_oldest_are_not_remembered(storage: Storage, looks: list[str]) -> None:
    bridge = opened(storage, known_bytes=120_000)
    for thread in ("t1", "t2", "t3", "t4"):
        await said(bridge, storage, f"{thread}-1", MESSAGES)
    looks.clear()

    for thread in ("t4", "t1"):
        await said(bridge, storage, f"{thread}-2", MESSAGES)

    assert looks == ["t1"]


async def test_a_thread_with_more_than_may_be_remembered_goes_on_all_the_same(
    storage: Storage, looks: list[str]
) -> None:
    bridge = opened(storage, known_bytes=100)
    await said(bridge, storage, "t1-1", MESSAGES)

    data = await said(bridge, storage, "t1-2", MESSAGES)

    assert data == to_json({"messages": MESSAGES})
    assert looks == ["t1", "t1"]
