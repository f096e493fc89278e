"""What every storage does, whichever database keeps it; a subclass supplies the `storage` fixture."""

import asyncio
import random
import string
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from contracts.queue_contract import QueueContract
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.conformance.test_utils import (
    generate_checkpoint,
    generate_config,
    generate_metadata,
)
from langgraph.store.base import InvalidNamespaceError, PutOp

from deerflow.domain import (
    CancelAction,
    DisconnectMode,
    MultitaskStrategy,
    RunOptions,
    RunRecord,
    RunRequest,
    RunStatus,
    Thread,
    ThreadStatus,
    TokenUse,
)
from deerflow.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    RollbackWantedError,
    StaleAttemptError,
    ThreadBusyError,
)
from deerflow.storage import LogBatch, LogEntry, OwnerLock, RunEnd, Storage, ThreadQuery, fence

DONE = RunEnd(RunStatus.SUCCESS)
ROLLED_BACK = RunEnd(RunStatus.INTERRUPTED, rolls_back=True)


def entries(*numbers: int, size: int = 10) -> list[LogEntry]:
    return [
        LogEntry(number, 1_700_000_000_000 + number, "messages", b'"%d"' % number * size)
        for number in numbers
    ]


def batch(*numbers: int, attempt: int = 1, run: str = "r1", **more: Any) -> LogBatch:
    return LogBatch(run, "t1", attempt, entries(*numbers), **more)


async def started(storage: Storage, run: str = "r1", thread: str = "t1") -> RunRecord:
    return await storage.runs.create(run, RunRequest(thread), owner="me")


class ThreadContract:
    async def test_a_thread_is_created_once_and_returned_afterwards(self, storage: Storage) -> None:
        first = await storage.threads.create("t1", "ann", {"topic": "deer"})
        second = await storage.threads.create("t1", "ann", {"topic": "other"})

        assert first == second == await storage.threads.get("t1")
        assert first.metadata == {"topic": "deer"}
        assert first.status is ThreadStatus.IDLE

    async def test_of_concurrent_creations_of_a_thread_one_succeeds(self, storage: Storage) -> None:
        creations = [storage.threads.create("t1", "ann", {"n": number}, is_new=True) for number in range(20)]

        made = await asyncio.gather(*creations, return_exceptions=True)

        threads = [each for each in made if isinstance(each, Thread)]
        assert len(threads) == 1
        assert all(isinstance(each, ConflictError) for each in made if each not in threads)
        assert await storage.threads.get("t1") == threads[0]

    async def test_a_thread_of_another_user_is_a_conflict_to_create_and_not_found(
        self, storage: Storage
    ) -> None:
        await storage.threads.create("t1", "ann", {})

        with pytest.raises(ConflictError):
            await storage.threads.create("t1", "bob", {})
        with pytest.raises(NotFoundError):
            await storage.threads.get("t1", "bob")
        assert (await storage.threads.get("t1", "ann")).user_id == "ann"

    @pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 65, "t\x00", "ü"])
    async def test_a_thread_id_that_could_leave_its_folder_is_refused(
        self, storage: Storage, name: str
    ) -> None:
        with pytest.raises(InvalidInputError):
            await storage.threads.create(name, "ann", {})

    async def test_an_update_merges_metadata_and_sets_title_and_status(self, storage: Storage) -> None:
        before = await storage.threads.create("t1", "ann", {"a": 1, "b": 2})

        after = await storage.threads.update(
            "t1", metadata={"b": 3, "c": None}, title="Deer 鹿", status=ThreadStatus.ERROR
        )

        assert after.metadata == {"a": 1, "b": 3, "c": None}
        assert (after.title, after.status) == ("Deer 鹿", ThreadStatus.ERROR)
        assert after.updated_at > before.updated_at
        assert (await storage.threads.update("t1", title="Other", touch=False)).updated_at == after.updated_at
        with pytest.raises(NotFoundError):
            await storage.threads.update("t2", title="unknown")

    async def test_metadata_that_is_not_json_is_refused(self, storage: Storage) -> None:
        for bad in ({"a": object()}, {"a": b"bytes"}, {"a": "\ud800"}, {"a": 2**70}):
            with pytest.raises(InvalidInputError):
                await storage.threads.create("t1", "ann", bad)

    async def test_text_that_is_not_unicode_is_refused(self, storage: Storage) -> None:
        await storage.threads.create("t1", "ann", {})

        with pytest.raises(InvalidInputError):
            await storage.threads.update("t1", title="\ud800")

    async def test_a_search_shows_the_latest_first_page_by_page(self, storage: Storage) -> None:
        for number in range(5):
            await storage.threads.create(f"t{number}", "ann", {})
        await storage.threads.create("other", "bob", {})
        await storage.threads.update("t1", title="touched")

        pages = [
            [thread.id for thread in await storage.threads.search(ThreadQuery("ann", limit=2, offset=offset))]
            for offset in (0, 2, 4)
        ]

        assert pages == [["t1", "t4"], ["t3", "t2"], ["t0"]]
        assert await storage.threads.count(ThreadQuery("ann")) == 5
        oldest = await storage.threads.search(ThreadQuery("ann", sort_by="created_at", descending=False))
        assert [thread.id for thread in oldest] == ["t0", "t1", "t2", "t3", "t4"]

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"n": 1}, ["num"]),
            ({"n": 1.0}, ["num"]),
            ({"n": True}, ["yes"]),
            ({"n": "1"}, ["text"]),
            ({"n": None}, ["null"]),
            ({"n": [1, "a"]}, ["list"]),
            ({"n": {"y": 1, "x": [2]}}, ["dict"]),
            ({"n": {"y": 1.0}}, ["dict"]),
            ({"n": {"x": [2]}}, ["dict"]),
            ({"n": {"x": [2], "z": 1}}, []),
            ({"n": {"y": {"y": 1}}}, []),
            ({"n": {"0": 1}}, []),
            ({"n": 1, "m": 2}, []),
            ({'it\'s "quoted".$[0]': "x"}, ["odd"]),
            ({"n' OR 1=1 --": 1}, []),
        ],
    )
    async def test_a_search_by_metadata_compares_values_not_texts(
        self, storage: Storage, wanted: dict[str, Any], found: list[str]
    ) -> None:
        made: dict[str, dict[str, Any]] = {
            "num": {"n": 1},
            "yes": {"n": True},
            "text": {"n": "1"},
            "null": {"n": None},
            "list": {"n": [1, "a"]},
            "dict": {"n": {"x": [2], "y": 1}},
            "odd": {'it\'s "quoted".$[0]': "x"},
            "none": {},
        }
        for name, metadata in made.items():
            await storage.threads.create(name, "ann", metadata)

        query = ThreadQuery("ann", metadata=wanted)

        assert [thread.id for thread in await storage.threads.search(query)] == found
        assert await storage.threads.count(query) == len(found)

    async def test_a_search_filters_by_status_and_ids(self, storage: Storage) -> None:
        for name in ("a", "b", "c"):
            await storage.threads.create(name, "ann", {})
        await storage.threads.update("b", status=ThreadStatus.ERROR)

        failed = await storage.threads.search(ThreadQuery("ann", status=ThreadStatus.ERROR))
        chosen = await storage.threads.search(ThreadQuery("ann", ids=["a", "c", "x'--"]))

        assert [thread.id for thread in failed] == ["b"]
        assert [thread.id for thread in chosen] == ["c", "a"]
        assert await storage.threads.search(ThreadQuery("ann", ids=[])) == []

    @pytest.mark.parametrize(
        "query",
        [
            ThreadQuery("ann", metadata={"": 1}),
            ThreadQuery("ann", metadata={"k" * 300: 1}),
            ThreadQuery("ann", metadata={7: 1}),  # type: ignore[dict-item]
            ThreadQuery("ann", metadata={str(number): 1 for number in range(60)}),
            ThreadQuery("ann", limit=-1),
            ThreadQuery("ann", sort_by="title; DROP TABLE threads"),  # type: ignore[arg-type]
        ],
    )
    async def test_an_invalid_search_is_refused(self, storage: Storage, query: ThreadQuery) -> None:
        with pytest.raises(InvalidInputError):
            await storage.threads.search(query)

    async def test_deleting_a_thread_leaves_nothing_of_it(self, storage: Storage) -> None:
        await started(storage)
        await storage.events.append(batch(0, fragments=[(0, b'"piece"')]))
        for thread in ("t1", "t1/call-1", "t1x", "t10"):
            await storage.checkpoints.aput(
                generate_config(thread), generate_checkpoint(), generate_metadata(), {}
            )

        await storage.threads.delete("t1")

        with pytest.raises(NotFoundError):
            await storage.threads.get("t1")
        with pytest.raises(NotFoundError):
            await storage.runs.get("r1")
        assert await storage.events.read("r1") == []
        assert await storage.events.digests("t1") == {}
        left = [found.config["configurable"]["thread_id"] async for found in storage.checkpoints.alist(None)]
        assert sorted(left) == ["t10", "t1x"]
        with pytest.raises(NotFoundError):
            await storage.threads.delete("t1")


class RunContract:
    async def test_a_run_creates_its_thread_and_keeps_it_busy_until_it_ends(self, storage: Storage) -> None:
        run = await storage.runs.create("r1", RunRequest("t1", user_id="ann"))

        assert (run.status, run.attempt, run.owner) == (RunStatus.PENDING, 0, None)
        assert (await storage.threads.get("t1")).status is ThreadStatus.BUSY
        claimed = await storage.runs.claim("r1", owner="me", attempt=0)
        assert (claimed.status, claimed.attempt, claimed.owner) == (RunStatus.RUNNING, 1, "me")
        usage = TokenUse(input_tokens=3, output_tokens=4, lead_tokens=7, llm_calls=1)
        end = RunEnd(
            RunStatus.ERROR, ThreadStatus.ERROR, "It broke.", stop_reason="oops", usage=usage, message_count=2
        )
        settled = await storage.runs.settle("r1", attempt=1, end=end)
        assert settled == await storage.runs.get("r1", "t1")
        assert (settled.status, settled.error, settled.stop_reason) == (RunStatus.ERROR, "It broke.", "oops")
        assert (settled.usage, settled.message_count) == (usage, 2)
        assert (await storage.threads.get("t1")).status is ThreadStatus.ERROR

    async def test_a_run_with_an_owner_is_claimed_at_once(self, storage: Storage) -> None:
        run = await started(storage)

        assert (run.status, run.attempt, run.owner) == (RunStatus.RUNNING, 1, "me")
        with pytest.raises(StaleAttemptError):
            await storage.runs.claim("r1", owner="you", attempt=0)

    async def test_a_request_is_stored_exactly(self, storage: Storage) -> None:
        request = RunRequest(
            "t1",
            user_id="ann",
            input={
                "messages": [{"type": "human", "content": "鹿 \u2028 \x00 \U0001f98c", "id": "m1", "n": 1.5}]
            },
            command={"resume": {"x": [None, True, 1e300, -(2**63)]}},
            options=RunOptions(model_name="m", is_plan_mode=True, max_total_subagents=9),
            context={"z": 1, "a": {"deep": [[]]}},
            metadata={"source": "test"},
            stream_modes=("values", "custom"),
            stream_subgraphs=True,
            on_disconnect=DisconnectMode.CONTINUE,
            multitask_strategy=MultitaskStrategy.ENQUEUE,
            checkpoint_id="c1",
            recursion_limit=7,
            interrupt_before="*",
            interrupt_after=("tools",),
            is_interactive=False,
        )

        await storage.runs.create("r1", request)
        stored = (await storage.runs.get("r1")).request

        assert stored == request
        assert list(stored.context) == ["z", "a"]
        assert isinstance(stored.multitask_strategy, MultitaskStrategy)

    async def test_a_request_that_is_not_json_is_refused_and_leaves_nothing(self, storage: Storage) -> None:
        for bad in ({"a": object()}, {"a": b"x"}, {"a": "\udfff"}, {1: "key"}):
            with pytest.raises(InvalidInputError):
                await storage.runs.create("r1", RunRequest("t1", input=bad))  # type: ignore[arg-type]

        with pytest.raises(NotFoundError):
            await storage.threads.get("t1")

    async def test_a_busy_thread_rejects_and_names_the_run(self, storage: Storage) -> None:
        await started(storage)

        with pytest.raises(ThreadBusyError) as caught:
            await storage.runs.create("r2", RunRequest("t1"))

        assert caught.value.run_id == "r1"
        with pytest.raises(NotFoundError):
            await storage.runs.get("r2")
        await storage.runs.settle("r1", attempt=1, end=DONE)
        assert (await started(storage, "r2")).status is RunStatus.RUNNING

    async def test_of_50_concurrent_runs_a_thread_admits_exactly_one(self, storage: Storage) -> None:
        tries = [storage.runs.create(f"r{number}", RunRequest("t1")) for number in range(50)]

        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert sum(isinstance(outcome, RunRecord) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, ThreadBusyError) for outcome in outcomes) == 49
        assert len(await storage.runs.of_thread("t1")) == 1

    async def test_other_strategies_admit_and_the_thread_stays_busy_until_the_last(
        self, storage: Storage
    ) -> None:
        await started(storage)
        await storage.runs.create("r2", RunRequest("t1", multitask_strategy=MultitaskStrategy.ENQUEUE))

        await storage.runs.settle("r1", attempt=1, end=DONE)

        assert (await storage.threads.get("t1")).status is ThreadStatus.BUSY
        await storage.runs.settle("r2", attempt=0, end=DONE)
        assert (await storage.threads.get("t1")).status is ThreadStatus.IDLE

    async def test_a_thread_of_another_user_is_not_found(self, storage: Storage) -> None:
        await storage.threads.create("t1", "ann", {})

        with pytest.raises(NotFoundError):
            await storage.runs.create("r1", RunRequest("t1", user_id="bob"))

    async def test_a_taken_run_id_is_a_conflict(self, storage: Storage) -> None:
        await started(storage)

        with pytest.raises(ConflictError):
            await started(storage, "r1", thread="t2")

    async def test_of_many_claims_one_wins(self, storage: Storage) -> None:
        await storage.runs.create("r1", RunRequest("t1"))
        tries = [storage.runs.claim("r1", owner=f"w{number}", attempt=0) for number in range(20)]

        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        winners = [outcome for outcome in outcomes if isinstance(outcome, RunRecord)]
        assert len(winners) == 1
        assert (await storage.runs.get("r1")).owner == winners[0].owner
        assert all(isinstance(other, RunRecord | StaleAttemptError) for other in outcomes)

    async def test_a_stale_attempt_may_write_nothing(self, storage: Storage) -> None:
        await started(storage)
        await storage.runs.claim("r1", owner="you", attempt=1)

        with pytest.raises(StaleAttemptError):
            await storage.runs.settle("r1", attempt=1, end=DONE)
        with pytest.raises(StaleAttemptError):
            await storage.events.append(batch(0, attempt=1))
        with pytest.raises(StaleAttemptError):
            await storage.runs.settle("r1", attempt=1, end=DONE, last=batch(0, attempt=2))

        assert await storage.events.last_seq("r1") == -1
        assert (await storage.runs.get("r1")).status is RunStatus.RUNNING

    async def test_a_run_ends_once(self, storage: Storage) -> None:
        await started(storage)
        await storage.runs.settle("r1", attempt=1, end=DONE)

        with pytest.raises(StaleAttemptError):
            await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.ERROR))
        with pytest.raises(StaleAttemptError):
            await storage.runs.claim("r1", owner="you", attempt=1)

        assert (await storage.runs.get("r1")).status is RunStatus.SUCCESS

    async def test_the_end_and_its_last_events_are_stored_together(self, storage: Storage) -> None:
        await started(storage)
        await storage.events.append(batch(0, 1))

        with pytest.raises(ConflictError):
            await storage.runs.settle(
                "r1", attempt=1, end=DONE, last=LogBatch("r1", "t1", 1, [LogEntry(1, 9, "end", b"x")])
            )

        assert (await storage.runs.get("r1")).status is RunStatus.RUNNING
        await storage.runs.settle("r1", attempt=1, end=DONE, last=batch(2))
        assert await storage.events.last_seq("r1") == 2

    async def test_lists_are_ordered_and_filtered(self, storage: Storage) -> None:
        for number in range(4):
            await started(storage, f"r{number}")
            await storage.runs.settle(f"r{number}", attempt=1, end=DONE)
        await started(storage, "r4")
        await started(storage, "s1", thread="t2")

        assert [run.id for run in await storage.runs.of_thread("t1")] == ["r4", "r3", "r2", "r1", "r0"]
        assert [run.id for run in await storage.runs.of_thread("t1", limit=2, offset=1)] == ["r3", "r2"]
        assert [run.id for run in await storage.runs.of_thread("t1", status=RunStatus.RUNNING)] == ["r4"]
        assert [run.id for run in await storage.runs.active()] == ["r4", "s1"]
        assert await storage.runs.of_thread("unknown") == []
        assert await storage.runs.count_of_thread("t1") == 5
        assert await storage.runs.count_of_thread("t1", status=RunStatus.RUNNING) == 1
        assert await storage.runs.count_of_thread("unknown") == 0

    async def test_a_run_is_looked_up_in_its_thread_only(self, storage: Storage) -> None:
        await started(storage)

        with pytest.raises(NotFoundError):
            await storage.runs.get("r1", "t2")
        with pytest.raises(NotFoundError):
            await storage.runs.get("r2")

    async def test_a_cancel_request_reaches_the_owner_until_the_run_ends(self, storage: Storage) -> None:
        await started(storage)
        await started(storage, "r2", thread="t2")

        await storage.runs.request_cancel("r1", CancelAction.ROLLBACK)

        assert await storage.runs.cancel_requests("me") == {"r1": CancelAction.ROLLBACK}
        assert await storage.runs.cancel_requests("you") == {}
        with pytest.raises(RollbackWantedError):
            await storage.runs.settle("r1", attempt=1, end=DONE)
        await storage.runs.request_cancel("r1", CancelAction.INTERRUPT)
        assert await storage.runs.cancel_requests("me") == {"r1": CancelAction.ROLLBACK}
        await storage.runs.settle("r1", attempt=1, end=ROLLED_BACK)
        await storage.runs.request_cancel("r1", CancelAction.INTERRUPT)
        assert await storage.runs.cancel_requests("me") == {}
        with pytest.raises(NotFoundError):
            await storage.runs.request_cancel("r9", CancelAction.INTERRUPT)

    async def test_a_heartbeat_returns_the_runs_of_the_owner(self, storage: Storage) -> None:
        await started(storage)
        await started(storage, "r2", thread="t2")
        await storage.runs.claim("r2", owner="you", attempt=1)

        assert await storage.runs.heartbeat("me") == {"r1": 1}
        assert await storage.runs.heartbeat("you") == {"r2": 2}
        assert await storage.runs.heartbeat("unknown") == {}

    async def test_runs_of_dead_owners_and_without_an_owner_are_orphans(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        living, dead, lock = (OwnerLock(tmp_path) for _ in range(3))
        await storage.runs.create("r1", RunRequest("t1"), owner=living.id)
        await storage.runs.create("r2", RunRequest("t2"), owner=dead.id)
        await storage.runs.create("r3", RunRequest("t3"))
        await storage.runs.create("r4", RunRequest("t4"), owner="other-machine-1-abc")
        await storage.runs.create("r5", RunRequest("t5"), owner=dead.id)
        await storage.runs.settle("r5", attempt=1, end=DONE)

        dead.close()

        assert [run.id for run in await storage.runs.orphans(lock)] == ["r2", "r3"]
        living.close()
        lock.close()

    async def test_only_a_run_that_ended_can_be_deleted(self, storage: Storage) -> None:
        await started(storage)
        await storage.events.append(batch(0))
        with pytest.raises(ConflictError):
            await storage.runs.delete("r1")

        await storage.runs.settle("r1", attempt=1, end=DONE)
        await storage.runs.delete("r1")

        with pytest.raises(NotFoundError):
            await storage.runs.get("r1")
        assert await storage.events.read("r1") == []
        await started(storage, "r2")
        assert await storage.events.last_seq("r2") == -1


class EventContract:
    async def test_events_are_read_from_any_number_on(self, storage: Storage) -> None:
        await started(storage)
        for numbers in ((0,), (1, 2, 3), (10, 11), tuple(range(12, 40))):
            await storage.events.append(batch(*numbers))
        everything = entries(0, 1, 2, 3, *range(10, 40))

        for after in range(-1, 41):
            assert await storage.events.read("r1", after_seq=after) == [
                entry for entry in everything if entry.seq > after
            ]
            assert (
                await storage.events.read("r1", after_seq=after, limit=2)
                == [entry for entry in everything if entry.seq > after][:2]
            )

        assert await storage.events.last_seq("r1") == 39
        assert await storage.events.read("r1", after_seq=-7) == everything
        assert await storage.events.read("r1", after_seq=2**40) == []
        assert await storage.events.read("r1", limit=0) == []
        assert await storage.events.read("r9") == []
        assert await storage.events.last_seq("r9") == -1

    async def test_bodies_are_stored_byte_for_byte(self, storage: Storage) -> None:
        await started(storage)
        chance = random.Random(7)
        bodies = [
            b"",
            b"x",
            b"X",
            b"\x01" + b"5-9\x01",
            b"\x78\x9c zlib?",
            bytes(range(256)) * 40,
            chance.randbytes(9000),
        ]
        sent = [LogEntry(number, number, "values", body) for number, body in enumerate(bodies)]

        await storage.events.append(LogBatch("r1", "t1", 1, sent, list(enumerate(bodies))))

        assert await storage.events.read("r1") == sent
        assert await storage.events.fragments("t1", range(99)) == dict(enumerate(bodies))

    async def test_a_batch_that_is_sent_again_is_stored_once(self, storage: Storage) -> None:
        await started(storage)
        await storage.events.append(batch(0, 1, 2, fragments=[(0, b"piece")]))

        await storage.events.append(batch(0, 1, 2, fragments=[(0, b"piece")]))
        await storage.events.append(batch(2, 3, 4))

        assert await storage.events.read("r1") == entries(0, 1, 2, 3, 4)

    async def test_a_number_is_never_given_to_another_event(self, storage: Storage) -> None:
        await started(storage)
        await storage.events.append(batch(0, 1, 5, fragments=[(0, b"piece")]))

        for taken in (1, 3, 5):
            with pytest.raises(ConflictError):
                await storage.events.append(LogBatch("r1", "t1", 1, [LogEntry(taken, 0, "values", b"other")]))
        with pytest.raises(ConflictError):
            await storage.events.append(batch(6, fragments=[(0, b"other")]))
        with pytest.raises(InvalidInputError):
            await storage.events.append(batch(8, 7))
        with pytest.raises(InvalidInputError):
            await storage.events.append(batch(2**32))

        assert await storage.events.read("r1") == entries(0, 1, 5)

    async def test_a_batch_of_an_unknown_run_is_refused(self, storage: Storage) -> None:
        await started(storage)

        with pytest.raises(StaleAttemptError):
            await storage.events.append(batch(0, run="r2"))
        with pytest.raises(StaleAttemptError):
            await storage.events.append(LogBatch("r1", "t2", 1, entries(0)))

    async def test_fragments_belong_to_the_thread_and_are_known_by_digest(self, storage: Storage) -> None:
        await started(storage)
        await started(storage, "s1", thread="t2")
        await storage.events.append(batch(0, fragments=[(1, b"one"), (2, b"two" * 500)]))
        await storage.events.append(LogBatch("s1", "t2", 1, entries(0), [(1, b"other")]))

        digests = await storage.events.digests("t1")

        assert sorted(digests.values()) == [1, 2]
        assert all(len(digest) == 16 for digest in digests)
        assert await storage.events.fragments("t1", [2, 1, 7, -1, 2**50]) == {1: b"one", 2: b"two" * 500}
        assert await storage.events.fragments("t2", [1]) == {1: b"other"}
        assert await storage.events.fragments("t9", [1]) == {}

    async def test_wanted_events_are_rendered_with_their_fragments(self, storage: Storage) -> None:
        run = await started(storage)
        bodies = [b"[\x010\x01]", b"[\x010-1\x01]", b"null"]
        entries = [
            LogEntry(seq, seq, "values" if seq < 2 else "end", body) for seq, body in enumerate(bodies)
        ]
        await storage.events.append(LogBatch("r1", "t1", 1, entries, [(0, b"1"), (1, b"2")]))

        rendered = storage.events.rendered(run, after_seq=0, wants=lambda entry: entry.kind == "values")

        assert [(entry.seq, body) async for entry, body in rendered] == [(1, b"[1,2]")]

    async def test_concurrent_runs_append_each_in_its_order(self, storage: Storage) -> None:
        names = [f"r{number}" for number in range(20)]
        for name in names:
            await started(storage, name, thread=f"t-{name}")

        async def write(name: str) -> None:
            for number in range(25):
                await storage.events.append(LogBatch(name, f"t-{name}", 1, entries(number)))

        await asyncio.gather(*map(write, names))

        for name in names:
            assert await storage.events.read(name) == entries(*range(25))


class CheckpointContract:
    async def test_it_passes_the_public_conformance_suite(self, storage: Storage) -> None:
        async def factory() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
            yield storage.checkpoints

        report = await validate(RegisteredCheckpointer("deerflow", factory))

        assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
        assert report.conformance_level() == "FULL"
        assert all(result.detected for result in report.results.values())

    async def test_a_stale_attempt_cannot_write_checkpoints(self, storage: Storage) -> None:
        await started(storage)
        config = generate_config("t1")
        mine = {"configurable": {**config["configurable"], **fence("r1", 1)}}
        stored = await storage.checkpoints.aput(mine, generate_checkpoint(), generate_metadata(), {})
        mine["configurable"]["checkpoint_id"] = stored["configurable"]["checkpoint_id"]

        await storage.runs.claim("r1", owner="you", attempt=1)

        with pytest.raises(StaleAttemptError):
            await storage.checkpoints.aput(mine, generate_checkpoint(), generate_metadata(), {})
        with pytest.raises(StaleAttemptError):
            await storage.checkpoints.aput_writes(mine, [("messages", "late")], "task")
        head = await storage.checkpoints.aget_tuple(config)
        assert head is not None
        assert (head.config, head.pending_writes) == (stored, [])
        assert "fence" not in str(head.metadata)

    async def test_deleting_checkpoints_of_a_thread_deletes_its_sub_threads(self, storage: Storage) -> None:
        for thread in ("t1", "t1/a", "t1/b", "t1-", "t2"):
            await storage.checkpoints.aput(
                generate_config(thread), generate_checkpoint(), generate_metadata(), {}
            )

        await storage.checkpoints.adelete_thread("t1")

        left = [found.config["configurable"]["thread_id"] async for found in storage.checkpoints.alist(None)]
        assert sorted(left) == ["t1-", "t2"]

    async def test_large_values_that_stay_the_same_are_stored_once(
        self, storage: Storage, stored_bytes: Callable[[], int]
    ) -> None:
        noise = "".join(random.Random(3).choices(string.ascii_letters, k=300_000))
        config = generate_config("t1")
        before = stored_bytes()

        for step in range(20):
            checkpoint = generate_checkpoint(channel_values={"image": noise, "step": step})
            checkpoint["channel_versions"] = {"image": 1, "step": step + 1}
            config = await storage.checkpoints.aput(
                config, checkpoint, generate_metadata(step=step), {"step": step + 1}
            )

        assert stored_bytes() - before < 4 * len(noise)
        found = [point.checkpoint async for point in storage.checkpoints.alist(generate_config("t1"))]
        assert [point["channel_values"]["step"] for point in found] == list(reversed(range(20)))
        assert {point["channel_values"]["image"] for point in found} == {noise}

    async def test_a_long_list_is_read_page_by_page(self, storage: Storage) -> None:
        config = generate_config("t1")
        for step in range(150):
            config = await storage.checkpoints.aput(
                config, generate_checkpoint(), generate_metadata(step=step), {}
            )

        steps = [found.metadata["step"] async for found in storage.checkpoints.alist(generate_config("t1"))]
        even = [
            found.metadata["step"]
            async for found in storage.checkpoints.alist(generate_config("t1"), filter={"step": 7}, limit=3)
        ]

        assert steps == list(reversed(range(150)))
        assert even == [7]
        assert [found async for found in storage.checkpoints.alist(generate_config("t1"), limit=0)] == []


class ItemContract:
    async def test_items_are_put_found_and_deleted(self, storage: Storage) -> None:
        store = storage.store
        await store.aput(("users", "ann"), "colour", {"value": "green", "n": [1, None, "鹿"]})

        item = await store.aget(("users", "ann"), "colour")

        assert item is not None
        assert (item.namespace, item.key) == (("users", "ann"), "colour")
        assert item.value == {"value": "green", "n": [1, None, "鹿"]}
        assert await store.aget(("users", "bob"), "colour") is None
        await store.adelete(("users", "ann"), "colour")
        assert await store.aget(("users", "ann"), "colour") is None

    async def test_a_second_put_keeps_the_time_of_the_first(self, storage: Storage) -> None:
        await storage.store.aput(("a",), "k", {"v": 1})
        first = await storage.store.aget(("a",), "k")
        await storage.store.aput(("a",), "k", {"v": 2})
        second = await storage.store.aget(("a",), "k")

        assert first is not None
        assert second is not None
        assert (second.value, second.created_at) == ({"v": 2}, first.created_at)
        assert second.updated_at >= first.updated_at

    async def test_an_item_is_replaced_only_if_unchanged_since_it_was_read(self, storage: Storage) -> None:
        store = storage.store

        is_new = await store.areplace(("a",), "k", {"v": 1}, seen=None)
        is_second_new = await store.areplace(("a",), "k", {"v": 2}, seen=None)
        first = await store.aget(("a",), "k")
        assert first is not None
        changes = await asyncio.gather(
            *(store.areplace(("a",), "k", {"v": n}, seen=first.updated_at) for n in (3, 4, 5))
        )
        last = await store.aget(("a",), "k")

        assert (is_new, is_second_new, first.value) == (True, False, {"v": 1})
        assert sorted(changes) == [False, False, True]
        assert last is not None
        assert last.value["v"] in (3, 4, 5)
        assert last.updated_at > first.updated_at
        assert last.created_at == first.created_at

    async def test_a_search_stays_inside_its_prefix(self, storage: Storage) -> None:
        for namespace in (("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a-b",), ("b",)):
            await storage.store.aput(namespace, "k", {"at": "/".join(namespace)})

        async def found(*prefix: str) -> set[str]:
            return {item.value["at"] for item in await storage.store.asearch(prefix)}

        assert await found("a") == {"a", "a/b", "a/b/c"}
        assert await found("a", "b") == {"a/b", "a/b/c"}
        assert len(await found()) == 6

    @pytest.mark.parametrize(
        ("wanted", "keys"),
        [
            ({"kind": "deer"}, {"1", "2"}),
            ({"n": {"$gt": 1}}, {"2", "3"}),
            ({"n": {"$gte": 1, "$lt": 3}}, {"1", "2"}),
            ({"kind": {"$ne": "deer"}}, {"3", "4"}),
            ({"n": {"$lte": 1}}, {"1"}),
            ({"deep": {"x": 1}}, {"4"}),
            ({"tags": ["a", "b"]}, {"4"}),
            ({"kind": "deer", "n": 2}, {"2"}),
        ],
    )
    async def test_a_search_filters_by_value(
        self, storage: Storage, wanted: dict[str, Any], keys: set[str]
    ) -> None:
        await storage.store.aput(("z",), "1", {"kind": "deer", "n": 1})
        await storage.store.aput(("z",), "2", {"kind": "deer", "n": 2})
        await storage.store.aput(("z",), "3", {"kind": "fox", "n": 3})
        await storage.store.aput(("z",), "4", {"deep": {"x": 1, "y": 2}, "tags": ["a", "b"]})

        assert {item.key for item in await storage.store.asearch(("z",), filter=wanted)} == keys

    async def test_pages_of_a_search_do_not_overlap(self, storage: Storage) -> None:
        for number in range(7):
            await storage.store.aput(("z",), str(number), {"n": number})

        pages = [await storage.store.asearch(("z",), limit=3, offset=offset) for offset in (0, 3, 6)]

        assert [item.key for page in pages for item in page] == ["6", "5", "4", "3", "2", "1", "0"]

    async def test_namespaces_are_listed_with_conditions(self, storage: Storage) -> None:
        for namespace in (("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("q",)):
            await storage.store.aput(namespace, "k", {})

        listed = storage.store.alist_namespaces

        assert await listed() == [("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("q",)]
        assert await listed(prefix=("a", "b")) == [("a", "b", "c"), ("a", "b", "d")]
        assert await listed(suffix=("c",)) == [("a", "b", "c"), ("a", "x", "c")]
        assert await listed(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
        assert await listed(max_depth=2) == [("a", "b"), ("a", "x"), ("q",)]
        assert await listed(limit=1, offset=1) == [("a", "b", "d")]

    async def test_an_expired_item_is_not_found(self, storage: Storage) -> None:
        await storage.store.aput(("a",), "short", {"v": 1}, ttl=1e-7)
        await storage.store.aput(("a",), "long", {"v": 1}, ttl=60)

        assert await storage.store.aget(("a",), "short", refresh_ttl=False) is None
        assert [item.key for item in await storage.store.asearch(("a",))] == ["long"]

    async def test_a_batch_reads_the_state_before_its_puts(self, storage: Storage) -> None:
        await storage.store.aput(("a",), "k", {"v": 1})
        ops = [PutOp(("a",), "k", {"v": 2}), PutOp(("a",), "k", {"v": 3}), PutOp(("a",), "new", None)]

        assert await storage.store.abatch(ops) == [None, None, None]

        item = await storage.store.aget(("a",), "k")
        assert item is not None
        assert item.value == {"v": 3}

    async def test_bad_names_and_values_are_refused(self, storage: Storage) -> None:
        with pytest.raises(InvalidNamespaceError):
            await storage.store.abatch([PutOp(("a.b",), "k", {"v": 1})])
        with pytest.raises(InvalidInputError):
            await storage.store.aput(("a",), "k", {"v": object()})
        await storage.store.aput(("a",), "k", {"v": 1})
        with pytest.raises(InvalidInputError):
            await storage.store.asearch(("a",), filter={"v": {"$like": 1}})


class StorageContract(
    ThreadContract, RunContract, QueueContract, EventContract, CheckpointContract, ItemContract
):
    """All of it."""
