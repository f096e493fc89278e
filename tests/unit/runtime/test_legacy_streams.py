"""Older forms of the event stream."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from deerflow.domain import StreamEvent
from deerflow.runtime.legacy_streams import ClassicMessages, SubgraphFrames, convert_events


def event(seq: int, kind: str, payload: Any) -> StreamEvent:
    return StreamEvent(seq, 1_700_000_000_000, kind, orjson.dumps(payload))


def piece(seq: int, text: str, message: str = "m1", kind: str = "messages", **more: Any) -> StreamEvent:
    return event(seq, kind, [{"type": "AIMessageChunk", "content": text, "id": message, **more}, {"step": 1}])


async def classic(*events: StreamEvent, after_seq: int = -1) -> list[tuple[int, str, Any]]:
    async def batches() -> AsyncIterator[list[StreamEvent]]:
        for item in events:
            yield [item]

    return [
        (item.seq, item.kind, orjson.loads(item.data))
        async for batch in convert_events(batches(), ClassicMessages().take, after_seq=after_seq)
        for item in batch
    ]


async def test_pieces_become_wholes_and_are_introduced_once() -> None:
    shown = await classic(piece(0, "one "), piece(1, "two"), piece(2, "other", "m2"), event(3, "end", None))

    assert [(seq, kind) for seq, kind, _ in shown] == [
        (0, "messages/metadata"),
        (0, "messages/partial"),
        (1, "messages/partial"),
        (2, "messages/metadata"),
        (2, "messages/partial"),
        (3, "end"),
    ]
    assert shown[0][2] == {"m1": {"metadata": {"step": 1}}}
    assert [data[0]["content"] for _, kind, data in shown if kind == "messages/partial"] == [
        "one ",
        "one two",
        "other",
    ]
    assert shown[1][2][0]["type"] == "ai"


async def test_tool_calls_grow_with_their_arguments() -> None:
    def call(seq: int, name: str | None, arguments: str) -> StreamEvent:
        chunk = {"name": name, "args": arguments, "id": "c1" if name else None, "index": 0}
        return piece(seq, "", tool_call_chunks=[{**chunk, "type": "tool_call_chunk"}])

    shown = await classic(call(0, "ls", '{"path"'), call(1, None, ': "/"}'))

    assert shown[-1][2][0]["tool_calls"] == [
        {"name": "ls", "args": {"path": "/"}, "id": "c1", "type": "tool_call"}
    ]


async def test_a_message_that_comes_whole_is_complete() -> None:
    tool = {"type": "tool", "content": "x", "id": "m3", "tool_call_id": "c1"}

    shown = await classic(event(0, "messages|tools:1", [tool, {}]))

    assert [kind for _, kind, _ in shown] == ["messages/metadata|tools:1", "messages/complete|tools:1"]
    assert shown[1][2] == [tool]


async def test_a_reader_that_comes_back_gets_the_rest_with_the_whole() -> None:
    events = (piece(0, "one "), piece(1, "two "), piece(2, "three"))

    shown = await classic(*events, after_seq=1)

    assert [(seq, kind, data[0]["content"]) for seq, kind, data in shown] == [
        (2, "messages/partial", "one two three")
    ]


ANSWER = {"type": "ai", "content": "found", "id": "m1"}
RESULT = {"type": "tool", "content": "3 files", "id": "m2"}


def custom(seq: int, kind: str, task_id: Any = "c1", **more: Any) -> StreamEvent:
    return StreamEvent(seq, 1000 + seq, "custom", orjson.dumps({"type": kind, "task_id": task_id, **more}))


def frames(*events: StreamEvent) -> list[tuple[str, Any]]:
    converted = SubgraphFrames()
    taken = [frame for event in events for frame in converted.take(event)]
    return [(frame.kind, orjson.loads(frame.data)) for frame in taken if frame.kind != "custom"]


def test_a_sub_agent_is_a_graph_below_its_call() -> None:
    asked = {"type": "human", "content": "look", "id": "c1-asked"}

    converted = frames(
        custom(1, "task_started", description="look"),
        custom(2, "task_running", message=RESULT),
        custom(3, "task_running", message=ANSWER),
        custom(4, "task_completed", result="found"),
    )

    assert [kind for kind, _ in converted] == [
        "values|tools:c1",
        "messages|tools:c1",
        "updates|tools:c1",
        "messages|tools:c1",
        "updates|tools:c1",
        "values|tools:c1",
    ]
    assert converted[0][1] == {"messages": [asked]}
    assert (converted[2][1], converted[4][1]) == (
        {"tools": {"messages": [RESULT]}},
        {"model": {"messages": [ANSWER]}},
    )
    assert converted[1][1][1]["langgraph_node"] == "tools"
    assert converted[-1][1] == {"messages": [asked, RESULT, ANSWER]}


def test_a_task_of_a_task_stands_below_it() -> None:
    converted = frames(
        custom(1, "task_started", description="outer"),
        custom(2, "task_started", "c2", description="inner", parent_task_id="c1"),
        custom(3, "task_running", "c2", message=ANSWER),
    )

    assert {kind for kind, _ in converted[1:]} == {
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

    whole = [frame async for batch in convert_events(batches(), SubgraphFrames().take) for frame in batch]
    rest = [
        frame
        async for batch in convert_events(batches(), SubgraphFrames().take, after_seq=1)
        for frame in batch
    ]

    assert rest == [frame for frame in whole if frame.seq > 1]
    assert [batch async for batch in convert_events(batches(), SubgraphFrames().take)][1] == []


async def test_readers_of_the_older_form_get_the_messages_of_sub_agents_in_it() -> None:
    async def batches() -> AsyncIterator[list[StreamEvent]]:
        yield [custom(1, "task_started", description="look"), custom(2, "task_running", message=ANSWER)]

    converted = [
        frame.kind
        async for batch in convert_events(batches(), SubgraphFrames().take, ClassicMessages().take)
        for frame in batch
    ]

    assert converted == [
        "values|tools:c1",
        "custom",
        "messages/metadata|tools:c1",
        "messages/complete|tools:c1",
        "updates|tools:c1",
        "custom",
    ]
