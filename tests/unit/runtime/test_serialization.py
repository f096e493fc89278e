"""Everything an agent does becomes JSON, each message once, and nothing makes it fail."""

import json
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import BaseModel

from deerflow.runtime.serialization import Encoder, message_json, to_json
from deerflow.storage.fragments import references, render

METADATA = {"langgraph_node": "model", "langgraph_step": 1}


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Place(BaseModel):
    name: str
    position: tuple[int, int]


def plain(value: Any) -> Any:
    return json.loads(to_json(value))


def shown(encoder: Encoder, body: bytes) -> Any:
    return json.loads(render(body, encoder.fragments))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"n": 2**70, "m": -(2**70)}, {"n": str(2**70), "m": str(-(2**70))}),
        ("half a character \ud83d", "half a character ?"),
        ({"\udc00": 1}, {"?": 1}),
        ({1: {(1, 2): 3}}, {"1": {"[1, 2]": 3}}),
        (b"\xff\x00", "/wA="),
        ({"deep": [b"ab", {"x"}]}, {"deep": ["YWI=", ["x"]]}),
        (ValueError("too late"), {"name": "ValueError", "message": "too late"}),
        (Place(name="x", position=(1, 2)), {"name": "x", "position": [1, 2]}),
        (float("nan"), None),
        (Unprintable(), "<Unprintable>"),
        ({"a": Unprintable(), "b": "\ud800"}, {"a": "<Unprintable>", "b": "?"}),
    ],
)
def test_what_json_cannot_hold_becomes_something_readable(value: Any, expected: Any) -> None:
    assert plain(value) == expected


def test_a_value_inside_itself_is_cut_at_once() -> None:
    loop: dict[str, Any] = {"name": "loop"}
    loop["left"] = loop["right"] = {"back": loop}

    assert plain(loop) == {"name": "loop", "left": {"back": "…"}, "right": {"back": "…"}}


def test_endless_nesting_is_cut() -> None:
    deep: list[Any] = []
    inner = deep
    for _ in range(5000):
        inner.append([])
        inner = inner[0]

    assert b"\xe2\x80\xa6" in to_json(deep)


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hello", id="h", name="ann"),
        SystemMessage([{"type": "text", "text": "be kind"}]),
        AIMessage(
            "",
            id="a",
            tool_calls=[{"name": "ls", "args": {"path": "/"}, "id": "c1"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            additional_kwargs={"reasoning_content": "hm"},
        ),
        ToolMessage("done", tool_call_id="c1", name="ls", status="error", artifact={"n": 1}),
        AIMessageChunk("to", id="a", tool_call_chunks=[{"name": "x", "args": "{", "id": "i", "index": 0}]),
    ],
)
def test_a_message_looks_like_its_plain_dump(message: AnyMessage) -> None:
    assert json.loads(message_json(message)) == message.model_dump()
    assert plain([message]) == [message.model_dump()]


def test_images_hidden_from_people_are_left_out_even_beside_broken_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    blocks: list[str | dict[Any, Any]] = [image, linked, {"type": "text", "text": "see \ud800"}]
    hidden = HumanMessage(blocks, additional_kwargs={"hide_from_ui": True})
    shown_one = HumanMessage([image])

    assert [block["type"] for block in json.loads(message_json(hidden))["content"]] == ["image_url", "text"]
    assert b"AAAA" not in to_json({"messages": [hidden]})
    assert b"AAAA" not in render(Encoder({}).encode({"n": "\ud800", "messages": [hidden]}), {})
    assert b"AAAA" in message_json(shown_one)


def test_a_message_is_kept_once_however_often_it_comes_by() -> None:
    encoder = Encoder({})
    messages = [HumanMessage("one", id="1"), AIMessage("two", id="2")]

    bodies = [encoder.encode({"messages": messages[:count], "title": "t"}) for count in (1, 2, 2, 2)]

    assert len(encoder.fresh) == 2
    assert len(bodies[-1]) < 50
    assert shown(encoder, bodies[-1]) == {"messages": [m.model_dump() for m in messages], "title": "t"}


def test_equal_messages_of_a_later_run_are_not_stored_again() -> None:
    first = Encoder({})
    first.encode([HumanMessage("one", id="1")])
    second = Encoder(first.digests)

    body = second.encode([HumanMessage("one", id="1"), AIMessage("two", id="2")])

    assert [number for number, _ in second.fresh] == [2]
    assert references(body) == [1, 2]


def test_tokens_cost_little_and_render_to_the_json_of_the_plain_dump() -> None:
    encoder = Encoder({})
    chunks = [AIMessageChunk(word, id="a", response_metadata={"model": "m"}) for word in ("it", " is", " 42")]

    bodies = [encoder.encode_chunk(chunk, METADATA) for chunk in chunks]

    assert [render(body, encoder.fragments) for body in bodies] == [
        to_json([chunk.model_dump(), METADATA]) for chunk in chunks
    ]
    assert len(encoder.fresh) == 1
    assert max(map(len, bodies)) < 30


@pytest.mark.parametrize(
    "chunk",
    [
        AIMessageChunk([{"type": "text", "text": "hi", "index": 0}], id="a"),
        AIMessageChunk("", id="a", tool_call_chunks=[{"name": "x", "args": "", "id": "i", "index": 0}]),
        AIMessageChunk("", id="a", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        AIMessageChunk("", id="a", additional_kwargs={"reasoning_content": "hm"}),
        AIMessageChunk("x", id="a", chunk_position="last"),
        AIMessageChunk("x", id="a", name="other"),
        AIMessageChunk("broken \ud800", id="a"),
        AIMessageChunk('quotes " and \x01 marks \\', id="a"),
        ToolMessage("result", tool_call_id="c", id="t"),
    ],
)
def test_every_kind_of_piece_renders_to_its_plain_dump_after_a_plain_token(chunk: Any) -> None:
    encoder = Encoder({})
    encoder.encode_chunk(AIMessageChunk("first", id="a"), METADATA)

    body = encoder.encode_chunk(chunk, METADATA)

    assert json.loads(render(body, encoder.fragments)) == json.loads(to_json([chunk.model_dump(), METADATA]))


def test_text_that_looks_like_a_reference_stays_text() -> None:
    encoder = Encoder({})
    encoder.encode([HumanMessage("one", id="1")])

    body = encoder.encode({"text": "\x011\x01", "messages": [HumanMessage("\x011-2\x01", id="2")]})

    assert shown(encoder, body)["text"] == "\x011\x01"
    assert shown(encoder, body)["messages"][0]["content"] == "\x011-2\x01"


def test_an_event_that_cannot_be_shortened_is_written_whole() -> None:
    encoder = Encoder({})

    body = encoder.encode({"n": 2**80, "messages": [HumanMessage("one", id="1")]})

    assert references(body) == []
    assert shown(encoder, body)["messages"][0]["content"] == "one"


def test_a_state_that_goes_on_differently_is_shown_as_it_is() -> None:
    encoder = Encoder({})
    messages: list[AnyMessage] = [HumanMessage("one", id="1"), AIMessage("two", id="2")]
    states = [list(messages), [*messages, HumanMessage("three", id="3")], [messages[0]], messages[::-1]]

    bodies = [encoder.encode({"messages": state}) for state in states]
    messages.append(AIMessage("late", id="4"))  # whoever owns the list goes on with it
    states.append(messages)
    bodies.append(encoder.encode({"messages": messages}))

    assert [shown(encoder, body) for body in bodies] == [plain({"messages": state}) for state in states]
