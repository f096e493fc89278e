"""What every stream bridge does: one log per run, the same for all readers, live or later, here or there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from deerflow.domain import (
    CancelAction,
    RunRecord,
    RunRequest,
    RunStatus,
    StreamEvent,
    new_id,
    seq_of,
)
from deerflow.errors import RollbackWantedError
from deerflow.runtime import StreamBridge
from deerflow.runtime.event_log import RunLog
from deerflow.storage import LogBatch, RunEnd, Storage

Nobody = Callable[[str], object]
METADATA: Mapping[str, Any] = {"langgraph_node": "model"}
MESSAGES = [HumanMessage("What is it?", id="h"), AIMessage("It is 42.", id="a")]


async def start(storage: Storage, *, owner: str = "here", thread: str = "t1") -> RunRecord:
    return await storage.runs.create(new_id(), RunRequest(thread), owner=owner)


def ending(storage: Storage, run: RunRecord) -> Callable[[LogBatch], Awaitable[object]]:
    return lambda last: storage.runs.settle(
        run.id, attempt=run.attempt, end=RunEnd(RunStatus.SUCCESS), last=last
    )


async def opened(bridge: StreamBridge, run: RunRecord) -> RunLog:
    log = bridge.open(run, on_lost=lambda _: None)
    await bridge.begin(log, run)
    return log


def speak(log: RunLog, words: int = 5) -> None:
    """Publish what a short turn publishes."""
    log.publish("metadata", {"run_id": log.run_id})
    log.publish("values", {"messages": MESSAGES[:1]})
    for number in range(words):
        log.publish_chunk("messages", AIMessageChunk(f"word{number} ", id="a"), METADATA)
    log.publish("custom", {"type": "note", "text": "\ud800 broken"})
    log.publish("values", {"messages": MESSAGES, "title": "Forty-two"})


async def read(events: AsyncIterator[list[StreamEvent]]) -> list[StreamEvent]:
    async with asyncio.timeout(60):
        return [event async for batch in events for event in batch]


class StreamBridgeContract:
    """A subclass supplies `storage`, and `elsewhere`: the same database as another process has it open."""

    @pytest.fixture
    def bridge(self, storage: Storage) -> StreamBridge:
        return StreamBridge(
            events=storage.events, runs=storage.runs, signals=storage.signals, flush_seconds=0.01
        )

    @pytest.fixture
    def other_bridge(self, elsewhere: Storage) -> StreamBridge:
        return StreamBridge(
            events=elsewhere.events, runs=elsewhere.runs, signals=elsewhere.signals, flush_seconds=0.01
        )

    @pytest.fixture
    async def finished(self, bridge: StreamBridge, storage: Storage) -> list[StreamEvent]:
        """A run that is over, as a live reader saw it."""
        run = await start(storage)
        self.run_id = run.id
        log = await opened(bridge, run)
        live = asyncio.create_task(read(bridge.subscribe(run.id)))
        await asyncio.sleep(0)
        speak(log)
        await log.flush()
        await bridge.publish_end(log, ending(storage, run))
        return await live

    async def test_live_and_stored_events_are_the_same_bytes(
        self, bridge: StreamBridge, other_bridge: StreamBridge, finished: list[StreamEvent]
    ) -> None:
        assert [event.kind for event in finished][:2] == ["metadata", "values"]
        assert [event.seq for event in finished] == list(range(len(finished)))
        assert finished[-1].kind == "end"
        assert await read(bridge.subscribe(self.run_id)) == finished
        assert await read(other_bridge.subscribe(self.run_id)) == finished

    async def test_a_reader_can_come_back_at_every_event(
        self, bridge: StreamBridge, finished: list[StreamEvent]
    ) -> None:
        for index, event in enumerate(finished):
            rest = await read(bridge.subscribe(self.run_id, after_seq=seq_of(event.id)))
            assert rest == finished[index + 1 :]

    @pytest.mark.parametrize("last_id", ["-1", "", "nonsense", "1700000000000-99999", "1700000000000-x"])
    async def test_an_id_that_the_run_never_had_gets_everything(
        self, bridge: StreamBridge, finished: list[StreamEvent], last_id: str
    ) -> None:
        assert await read(bridge.subscribe(self.run_id, after_seq=seq_of(last_id))) == finished

    async def test_a_live_reader_with_an_unknown_id_gets_everything(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        readers = [
            asyncio.create_task(read(bridge.subscribe(run.id, after_seq=seq))) for seq in (-1, 500, 10**12)
        ]
        await asyncio.sleep(0)
        await bridge.publish_end(log, ending(storage, run))

        first, *others = [await reader for reader in readers]
        assert first[0].seq == 0
        assert others == [first, first]

    async def test_a_live_reader_can_come_back_at_every_event(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        await log.flush()
        count = log.next_seq
        readers = [
            asyncio.create_task(read(bridge.subscribe(run.id, after_seq=seq))) for seq in range(-1, count)
        ]
        await asyncio.sleep(0)
        await bridge.publish_end(log, ending(storage, run))

        for seq, reader in enumerate(readers):
            assert [event.seq for event in await reader] == list(range(seq, count + 1))

    async def test_a_burst_reaches_many_readers_whole_and_in_order(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        readers = [asyncio.create_task(read(bridge.subscribe(run.id))) for _ in range(20)]
        await asyncio.sleep(0)

        for number in range(2000):
            log.publish_chunk("messages", AIMessageChunk(f"{number} ", id="a"), METADATA)
        await bridge.publish_end(log, ending(storage, run))

        seen = await asyncio.gather(*readers)
        assert [event.seq for event in seen[0]] == list(range(2001))
        assert all(events == seen[0] for events in seen)
        assert await read(bridge.subscribe(run.id)) == seen[0]

    async def test_a_reader_that_never_reads_holds_nobody_up(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        asleep = bridge.subscribe(run.id)
        first = await anext(asleep)
        for number in range(1000):
            log.publish("custom", {"number": number})
        await bridge.publish_end(log, ending(storage, run))

        awake = await read(bridge.subscribe(run.id))
        rest = await read(asleep)

        assert first + rest == awake

    async def test_silence_is_filled_with_signs_of_life(
        self, bridge: StreamBridge, other_bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        log.publish("metadata", {})
        await log.flush()

        for reader in (
            bridge.subscribe(run.id, heartbeat_seconds=0.01),
            other_bridge.subscribe(run.id, heartbeat_seconds=0.01),
        ):
            async with asyncio.timeout(60):
                assert [len(await anext(reader)) for _ in range(3)] == [1, 0, 0]
        await bridge.abandon(log)

    async def test_another_process_follows_while_events_are_written(
        self, bridge: StreamBridge, other_bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        stream = other_bridge.subscribe(run.id)
        speak(log)
        await log.flush()
        first = await anext(stream)
        assert first[0].kind == "metadata"

        rest = asyncio.create_task(read(stream))
        speak(log)
        await bridge.publish_end(log, ending(storage, run))

        assert first + await rest == await read(bridge.subscribe(run.id))

    async def test_a_later_attempt_goes_on_behind_what_was_stored(
        self, bridge: StreamBridge, other_bridge: StreamBridge, storage: Storage, elsewhere: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        await log.flush()
        before = log.after(-1)
        again = await elsewhere.runs.claim(run.id, owner="elsewhere", attempt=1)
        speak(log)  # too late to be stored, so never seen
        assert log.after(before[-1].seq) == []

        taken_up = other_bridge.open(again, on_lost=lambda _: None)
        # Readers that come while the new owner has not begun yet: a new one, one that saw something, and
        # one that saw everything.
        places = (-1, before[2].seq, before[-1].seq)
        readers = [asyncio.create_task(read(other_bridge.subscribe(run.id, after_seq=seq))) for seq in places]
        await asyncio.sleep(0.1)
        await other_bridge.begin(taken_up, again)
        speak(taken_up)
        await other_bridge.publish_end(taken_up, ending(elsewhere, again))

        everything, late, caught_up = [await reader for reader in readers]
        after = everything[len(before) :]
        assert everything[: len(before)] == before
        assert after[0].seq > before[-1].seq + len(before), "no number is given twice, not even unseen"
        assert after[-1].kind == "end"
        assert late == everything[3:]
        assert caught_up == after
        await bridge.abandon(log)

    async def test_attempts_that_die_before_they_store_anything_share_no_number(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        firsts = []
        for _ in range(3):
            log = await opened(bridge, run)
            firsts.append(log.next_seq)  # it would number its events from here, and dies
            run = await storage.runs.claim(run.id, owner="here", attempt=run.attempt)

        assert firsts == sorted(set(firsts))

    async def test_a_reader_is_not_given_more_at_once_than_its_connection_should_hold(
        self, bridge: StreamBridge, other_bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        for number in range(20):
            log.publish("values", {"number": number, "text": "x" * 200_000})
        await log.flush()

        for reader in (bridge.subscribe(run.id), other_bridge.subscribe(run.id)):
            batches = [await anext(reader) for _ in range(10)]
            assert [len(batch) for batch in batches] == [2] * 10
        await bridge.abandon(log)

    async def test_readers_of_a_process_that_lets_go_follow_the_next_owner(
        self, bridge: StreamBridge, other_bridge: StreamBridge, storage: Storage, elsewhere: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        reader = asyncio.create_task(read(bridge.subscribe(run.id)))
        await asyncio.sleep(0)
        await bridge.abandon(log)
        again = await elsewhere.runs.claim(run.id, owner="elsewhere", attempt=1)
        taken_up = await opened(other_bridge, again)
        speak(taken_up)
        await other_bridge.publish_end(taken_up, ending(elsewhere, again))

        assert await reader == await read(other_bridge.subscribe(run.id))

    async def test_an_ended_run_without_a_log_has_an_end(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        await storage.runs.settle(run.id, attempt=1, end=RunEnd(RunStatus.ERROR))

        events = await read(bridge.subscribe(run.id, after_seq=7))

        assert [(event.kind, event.data) for event in events] == [("end", b"null")]

    async def test_a_run_that_was_to_end_otherwise_may_still_say_why(
        self, bridge: StreamBridge, storage: Storage
    ) -> None:
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        await storage.runs.request_cancel(run.id, CancelAction.ROLLBACK)
        with pytest.raises(RollbackWantedError):
            await bridge.publish_end(log, ending(storage, run))

        log.publish("custom", {"type": "rolled_back"})
        undone = RunEnd(RunStatus.INTERRUPTED, rolls_back=True)
        await bridge.publish_end(
            log, lambda last: storage.runs.settle(run.id, attempt=1, end=undone, last=last)
        )

        events = await read(bridge.subscribe(run.id))
        assert [event.kind for event in events[-2:]] == ["custom", "end"]
        assert b"rolled_back" in events[-2].data

    async def test_fragments_are_shared_by_the_runs_of_a_thread(
        self, bridge: StreamBridge, storage: Storage, finished: list[StreamEvent]
    ) -> None:
        before = await storage.events.digests("t1")
        run = await start(storage)
        log = await opened(bridge, run)
        log.publish("values", {"messages": [*MESSAGES, HumanMessage("And now?", id="h2")]})
        await bridge.publish_end(log, ending(storage, run))

        after = await storage.events.digests("t1")
        assert len(after) == len(before) + 1
        again = StreamBridge(events=storage.events, runs=storage.runs, signals=storage.signals)
        assert b"What is it?" in (await read(again.subscribe(run.id)))[0].data

    async def test_a_forgotten_thread_begins_anew(
        self, bridge: StreamBridge, storage: Storage, finished: list[StreamEvent]
    ) -> None:
        await storage.threads.delete("t1")
        bridge.forget("t1")
        run = await start(storage)
        log = await opened(bridge, run)
        speak(log)
        await bridge.publish_end(log, ending(storage, run))

        assert [replace(event, unix_ms=0).data for event in await read(bridge.subscribe(run.id))][1:] == [
            event.data for event in finished
        ][1:]
