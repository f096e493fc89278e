"""Tool calls whose arguments broke off are named, whichever provider streamed them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.utils.json import parse_partial_json
from support.model_server import ScriptedModel, calls, raw_call, text
from support.raw_server import raw_server

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory
from deerflow.models.tool_call_assembly import BROKEN_CALLS, ToolCallAssembler, rejecting_suffix

HALF = '{"path": "/a.txt", "content": "half of'
WHOLE = '{"path": "/a.txt", "content": "all of it"}'
TOOL = {"name": "write_file", "description": "w", "parameters": {"type": "object", "properties": {}}}


async def answer(factory: ModelFactory, name: str | None = None) -> AIMessage:
    """Call the model as an agent with a token stream does: the answer is joined from its chunks."""
    said = await factory.create(name).bind_tools([TOOL]).ainvoke([HumanMessage("hi")], stream=True)
    await factory.aclose()
    return said


def entry(**given: Any) -> ModelSettings:
    return ModelSettings.model_validate(
        {"name": "m", "model": "m", "api_key": "k", "max_retries": 0, **given}
    )


def openai(model: ScriptedModel, **more: Any) -> ModelSettings:
    return entry(use="langchain_openai:ChatOpenAI", base_url=model.base_url, **more)


@pytest.fixture
async def anthropic() -> AsyncIterator[str]:
    """Return the address of a server that streams a whole and a broken call in Anthropic's own words."""
    started = {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    }
    stopped = {"stop_reason": "tool_use", "stop_sequence": None}
    events = [
        started,
        *_tool_use(0, "whole", WHOLE),
        *_tool_use(1, "half", HALF),
        {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()


def _tool_use(index: int, call_id: str, arguments: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "name": "write_file", "input": {}}
    pieces = [arguments[:9], arguments[9:]]
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": index},
    ]


@pytest.mark.parametrize("transport", ["lean", "sdk"])
async def test_both_transports_name_the_call_that_broke_off_and_no_other(
    model: ScriptedModel, transport: str
) -> None:
    model.will_say(calls(raw_call("write_file", WHOLE), raw_call("write_file", HALF)))

    said = await answer(ModelFactory([openai(model, transport=transport)], env={}))

    whole, half = said.tool_calls
    assert whole["args"]["content"] == "all of it"
    assert said.additional_kwargs[BROKEN_CALLS] == [half["id"]]


async def test_another_provider_is_watched_in_the_same_way(anthropic: str) -> None:
    settings = entry(use="langchain_anthropic:ChatAnthropic", base_url=anthropic, max_tokens=100)

    said = await answer(ModelFactory([settings], env={}))

    assert [call["id"] for call in said.tool_calls] == ["whole", "half"]
    assert said.additional_kwargs[BROKEN_CALLS] == ["half"]


async def test_a_fallback_is_watched_too(model: ScriptedModel) -> None:
    model.will_say(raw_call("write_file", HALF))
    first = entry(name="first", use="langchain_openai:ChatOpenAI", base_url="http://127.0.0.1:9/v1")
    first = first.model_copy(update={"fallbacks": ["m"]})

    said = await answer(ModelFactory([first, openai(model, transport="sdk")], env={}), "first")

    assert said.additional_kwargs[BROKEN_CALLS] == [said.tool_calls[0]["id"]]


async def test_an_answer_without_broken_calls_stays_as_it_was(model: ScriptedModel) -> None:
    model.will_say(text("Nothing to do.") + raw_call("write_file", WHOLE) + raw_call("ls", ""))

    said = await answer(ModelFactory([openai(model, transport="sdk")], env={}))

    assert BROKEN_CALLS not in said.additional_kwargs
    assert said.text == "Nothing to do."
    assert [call["name"] for call in said.tool_calls] == ["write_file", "ls"]


async def test_a_watched_model_keeps_its_class_and_its_name(anthropic: str) -> None:
    settings = entry(use="langchain_anthropic:ChatAnthropic", base_url=anthropic)
    factory = ModelFactory([settings], env={})

    made = type(factory.create())

    await factory.aclose()
    assert (made.__name__, made.__module__) == ("ChatAnthropic", "langchain_anthropic.chat_models")


CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "write_file", "arguments": WHOLE}}


@pytest.mark.parametrize("transport", ["lean", "sdk"])
@pytest.mark.parametrize("delta", [{"content": "Yes."}, {"tool_calls": [CALL]}], ids=["text", "call"])
async def test_what_comes_with_the_end_is_shown_before_it(transport: str, delta: dict[str, Any]) -> None:
    choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": "stop"}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    body = f"data: {json.dumps({**event, 'usage': counts})}\n\ndata: [DONE]\n\n".encode()

    async with raw_server(body, kind="text/event-stream") as address:
        factory = ModelFactory(
            [entry(use="langchain_openai:ChatOpenAI", base_url=address, transport=transport)], env={}
        )
        chunks = [chunk async for chunk in factory.create().astream([HumanMessage("hi")])]
        await factory.aclose()

    ends = [at for at, chunk in enumerate(chunks) if chunk.response_metadata.get("finish_reason")]
    said = [at for at, chunk in enumerate(chunks) if chunk.content or chunk.tool_call_chunks]
    assert len(ends) == 1
    assert max(said) < ends[0]
    first, *more = chunks
    whole = first.__add__(more)  # type: ignore[arg-type]
    assert whole.text == delta.get("content", "")
    assert [one["args"] for one in whole.tool_calls] == ([json.loads(WHOLE)] if "tool_calls" in delta else [])
    assert whole.response_metadata["finish_reason"] == "stop"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["total_tokens"] == 3


Piece = dict[str, Any]


def piece(arguments: Any = None, *, name: str | None = None, **more: Any) -> Piece:
    return {"function": {"name": name, "arguments": arguments}, **more}


def joined(pieces: ToolCallAssembler, *given: Piece) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call as the adapter puts them together: by number."""
    calls: dict[int, list[str]] = {}
    for one in given:
        pieces.take(one)
        call = calls.setdefault(one["index"], ["", "", ""])
        call[0] = call[0] or one["id"]
        assert one.get("id") in (None, "", call[0])
        call[1] += one["function"].get("name") or ""
        call[2] += one["function"].get("arguments") or ""
    return [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]


def two_calls(*, indexes: Iterable[Any], more: Iterable[Piece] = ()) -> list[Piece]:
    first, second = ({} if index is None else {"index": index} for index in indexes)
    return [piece("", name="ls", id="a", **first), piece("", name="rm", id="b", **second), *more]


NO_INDEX = two_calls(
    indexes=[None, None],
    more=[piece('{"p":', id="a"), piece('{"p":', id="b"), piece(" 1}", id="a"), piece(" 2}", id="b")],
)
INTERLEAVED = two_calls(indexes=[0, 1], more=[piece('{"p": 2}', index=1), piece('{"p": 1}', index=0)])
WORDS_FOR_INDEXES = two_calls(
    indexes=["0", "1"], more=[piece('{"p": 2}', index="1"), piece('{"p": 1}', index="0")]
)
ALWAYS_INDEX_ZERO = two_calls(
    indexes=[0, 0], more=[piece('{"p": 1}', index=0, id="a"), piece('{"p": 2}', index=0, id="b")]
)
NAMES_AND_IDS_AGAIN = two_calls(
    indexes=[0, 1],
    more=[piece('{"p": 1}', name="ls", index=0, id="a"), piece('{"p": 2}', name="rm", index=1, id="b")],
)
A_NEW_ID_EACH_TIME = two_calls(
    indexes=[0, 1],
    more=[piece('{"p":', index=0, id="x"), piece(" 1}", index=0, id="y"), piece('{"p": 2}', index=1, id="z")],
)


@pytest.mark.parametrize(
    "given",
    [NO_INDEX, INTERLEAVED, WORDS_FOR_INDEXES, ALWAYS_INDEX_ZERO, NAMES_AND_IDS_AGAIN, A_NEW_ID_EACH_TIME],
)
def test_calls_stay_apart_however_a_server_numbers_them(given: list[Piece]) -> None:
    pieces = ToolCallAssembler()

    calls = joined(pieces, *given)

    assert calls == [("a", "ls", '{"p": 1}'), ("b", "rm", '{"p": 2}')]
    assert pieces.broken() == []


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_calls_without_an_id_get_one_each(index: Piece) -> None:
    calls = joined(ToolCallAssembler(), *(piece('{"p": 1}', name="ls", **index) for _ in range(2)))

    assert [call[1:] for call in calls] == [("ls", '{"p": 1}')] * 2
    assert len({call[0] for call in calls} - {""}) == 2


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_a_name_that_is_said_with_every_piece_makes_one_call(index: Piece) -> None:
    given = [piece(said, name="ls", **index) for said in ("", '{"p": {"q":', " 1}", "}", "")]

    calls = joined(ToolCallAssembler(), *given)

    assert [call[1:] for call in calls] == [("ls", '{"p": {"q": 1}}')]


def test_one_id_for_two_calls_does_not_make_one_of_them() -> None:
    given = [
        piece('{"p": 1}', name="ls", index=0, id="same"),
        piece('{"p": 2}', name="ls", index=1, id="same"),
    ]

    calls = joined(ToolCallAssembler(), *given)

    assert [call[2] for call in calls] == ['{"p": 1}', '{"p": 2}']


def test_a_call_that_broke_off_is_named_also_when_the_server_gave_it_no_id() -> None:
    pieces = ToolCallAssembler()

    ((call_id, _, _),) = joined(pieces, piece('{"path": "/mnt', name="rm", index=0))

    assert call_id
    assert pieces.broken() == [call_id]


def test_arguments_that_come_as_an_object_are_written_out() -> None:
    calls = joined(ToolCallAssembler(), piece({"p": "路"}, name="ls", id="a"))

    assert calls == [("a", "ls", '{"p":"路"}')]


def test_numbers_for_ids_and_odd_types_are_understood_or_left_out() -> None:
    pieces = ToolCallAssembler()

    calls = joined(pieces, piece('{"p":', name="ls", id=7, index=[]), piece(" 1}", id=7, index={}))
    pieces.take({"id": "b", "function": {"name": 3, "arguments": 4}})

    assert calls == [("7", "ls", '{"p": 1}')]
    assert pieces.broken() == []


@pytest.mark.parametrize("function", [None, "ls", []])
def test_a_piece_without_a_function_does_no_harm(function: Any) -> None:
    pieces = ToolCallAssembler()

    pieces.take({"id": "a", "function": function})

    assert pieces.broken() == []


@pytest.mark.parametrize(
    "arguments",
    [
        "word " * 16_000,
        '{"a": "' + "x" * 80_000 + '" garbage ' + "y" * 20_000,
        '{"a": "' + "x" * 80_000 + "\\",
        '{"a": ' + "[" * 900 + "x" * 80_000,
        '{"a": [{"b": "c"' + " z" * 40_000,
    ],
    ids=["text", "garbage behind a text", "open text", "brackets", "open object"],
)
def test_a_long_broken_call_is_given_up_in_linear_time(arguments: str) -> None:
    started = time.process_time()  # not what others on this machine take

    ended = parse_partial_json(arguments + rejecting_suffix(arguments))

    assert ended is None
    assert time.process_time() - started < 2
