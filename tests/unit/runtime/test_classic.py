"""Messages in the older form: whole so far, each introduced once."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from deerflow.domain import StreamEvent
from deerflow.runtime.classic import ClassicMessages
from deerflow.runtime.retelling import retold


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
        async for batch in retold(batches(), ClassicMessages().take, after_seq=after_seq)
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
