"""Everything an agent does becomes JSON, each message once, and nothing makes it fail."""

import json
from collections import deque
from collections.abc import Iterator, Mapping
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
from pydantic import BaseModel, model_serializer

from deerflow.runtime.serialization import message_json, to_json


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Place(BaseModel):
    name: str
    position: tuple[int, int]


class Measured(float):
    """A number of a kind of its own, as NumPy's are."""


class Sealed(BaseModel):
    name: str

    @model_serializer
    def _refuse(self) -> str:
        raise RuntimeError("no")


class Closed(Mapping[str, str]):
    """A connection, say, that was closed before it was read."""

    def __getitem__(self, key: str) -> str:
        raise OSError("closed")

    def __iter__(self) -> Iterator[str]:
        raise OSError("closed")

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "<Closed>"


def plain(value: Any) -> Any:
    return json.loads(to_json(value))


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
        ({"a": Measured(1.5), "b": "\ud800"}, {"a": 1.5, "b": "?"}),
        ({"a": Sealed(name="x")}, {"a": "name='x'"}),
        ({"a": deque([Closed()])}, {"a": "deque([<Closed>])"}),
        (Closed(), "<Closed>"),
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
    assert b"AAAA" in message_json(shown_one)
