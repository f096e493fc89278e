"""The steps of sub-agents as frames below the root."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from deerflow.domain import StreamEvent
from deerflow.runtime.classic import ClassicMessages
from deerflow.runtime.retelling import retold
from deerflow.runtime.subgraph_frames import SubgraphFrames

ANSWER = {"type": "ai", "content": "found", "id": "m1"}
RESULT = {"type": "tool", "content": "3 files", "id": "m2"}


def custom(seq: int, kind: str, task_id: Any = "c1", **more: Any) -> StreamEvent:
    return StreamEvent(seq, 1000 + seq, "custom", orjson.dumps({"type": kind, "task_id": task_id, **more}))


def frames(*events: StreamEvent) -> list[tuple[str, Any]]:
    told = SubgraphFrames()
    taken = [frame for event in events for frame in told.take(event)]
    return [(frame.kind, orjson.loads(frame.data)) for frame in taken if frame.kind != "custom"]


def test_a_sub_agent_is_a_graph_below_its_call() -> None:
    asked = {"type": "human", "content": "look", "id": "c1-asked"}

    told = frames(
        custom(1, "task_started", description="look"),
        custom(2, "task_running", message=RESULT),
        custom(3, "task_running", message=ANSWER),
        custom(4, "task_completed", result="found"),
    )

    assert [kind for kind, _ in told] == [
        "values|tools:c1",
        "messages|tools:c1",
        "updates|tools:c1",
        "messages|tools:c1",
        "updates|tools:c1",
        "values|tools:c1",
    ]
    assert told[0][1] == {"messages": [asked]}
    assert (told[2][1], told[4][1]) == (
        {"tools": {"messages": [RESULT]}},
        {"model": {"messages": [ANSWER]}},
    )
    assert told[1][1][1]["langgraph_node"] == "tools"
    assert told[-1][1] == {"messages": [asked, RESULT, ANSWER]}


def test_a_task_of_a_task_stands_below_it() -> None:
    told = frames(
        custom(1, "task_started", description="outer"),
        custom(2, "task_started", "c2", description="inner", parent_task_id="c1"),
        custom(3, "task_running", "c2", message=ANSWER),
    )

    assert {kind for kind, _ in told[1:]} == {
        f"{mode}|tools:c1|tools:c2" for mode in ("values", "messages", "updates")
    }


def test_what_is_no_step_of_a_task_is_passed_on_alone() -> None:
    other = StreamEvent(1, 1, "values", b'{"task_id": "c1"}')
    strange = [
        custom(2, "task_running", message=ANSWER),
        custom(3, "task_completed"),
        custom(4, "task_started", 7),
        StreamEvent(5, 1, "custom", b'["task_id", "\\"task_id\\""]'),
    ]

    assert SubgraphFrames().take(other) == [other]
    assert frames(*strange) == []


async def test_a_reader_that_comes_back_gets_the_same_frames() -> None:
    events = [
        custom(1, "task_started", description="look"),
        custom(2, "task_running", message=ANSWER),
        custom(3, "task_failed", error="no"),
    ]

    async def batches() -> AsyncIterator[list[StreamEvent]]:
        yield events[:1]
        yield []
        yield events[1:]

    whole = [frame async for batch in retold(batches(), SubgraphFrames().take) for frame in batch]
    rest = [frame async for batch in retold(batches(), SubgraphFrames().take, after_seq=1) for frame in batch]

    assert rest == [frame for frame in whole if frame.seq > 1]
    assert [batch async for batch in retold(batches(), SubgraphFrames().take)][1] == []


async def test_readers_of_the_older_form_get_the_messages_of_sub_agents_in_it() -> None:
    async def batches() -> AsyncIterator[list[StreamEvent]]:
        yield [custom(1, "task_started", description="look"), custom(2, "task_running", message=ANSWER)]

    told = [
        frame.kind
        async for batch in retold(batches(), SubgraphFrames().take, ClassicMessages().take)
        for frame in batch
    ]

    assert told == [
        "values|tools:c1",
        "custom",
        "messages/metadata|tools:c1",
        "messages/complete|tools:c1",
        "updates|tools:c1",
        "custom",
    ]
