"""What compatible servers say beside the text is kept, streamed and sent back."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, StreamChunkTimeoutError
from support.loop_watch import LoopWatch
from support.model_server import ScriptedModel, call, raw_call, reasoning, silence, text

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory
from deerflow.models.compatible import CompatibleChatOpenAI, connection_problem
from deerflow.models.discovery import OFFLINE
from deerflow.models.pool import SessionPool
from deerflow.models.tool_call_assembly import reporting_malformed_calls


@pytest.fixture(params=["lean", "sdk"])
def chat(
    request: pytest.FixtureRequest, model: ScriptedModel, pool: SessionPool, sdk_clients: dict[str, Any]
) -> CompatibleChatOpenAI:
    given = {"base_url": model.base_url, "transport": request.param, "pool": pool, **sdk_clients}
    return CompatibleChatOpenAI(model="m", api_key="k", max_retries=0, **given)


@pytest.mark.parametrize("transport", ["lean", "sdk"])
async def test_a_stream_that_goes_silent_is_given_up(
    transport: str, model: ScriptedModel, pool: SessionPool, sdk_clients: dict[str, Any]
) -> None:
    model.will_say(silence("a b c", after=2))
    given = {"base_url": model.base_url, "transport": transport, "pool": pool, **sdk_clients}
    chat = CompatibleChatOpenAI(model="m", api_key="k", stream_chunk_timeout=1.5, **given)
    seen: list[str] = []

    async def read() -> None:
        async for chunk in chat.astream("hi"):
            seen.append(chunk.text)

    with pytest.raises(StreamChunkTimeoutError, match=r"1\.5s") as raised:
        await read()

    assert "".join(seen) == "a b "
    assert raised.value.model_name == "m"
    await model.until(lambda m: m.aborted == 1)


async def test_a_slow_reader_of_the_sdk_is_no_silent_server(
    model: ScriptedModel, sdk_clients: dict[str, Any]
) -> None:
    model.will_say(text("a b c", delay=0.02))
    given = {"base_url": model.base_url, "transport": "sdk", "stream_chunk_timeout": 1.5, **sdk_clients}
    parts = []

    async for chunk in CompatibleChatOpenAI(model="m", api_key="k", **given).astream("hi"):
        if not parts:
            await asyncio.sleep(1.7)  # longer than the limit: what is tested is that this time does not count
        parts.append(chunk.text)

    assert "".join(parts) == "a b c"


async def test_a_reader_of_the_sdk_that_leaves_ends_the_call(
    model: ScriptedModel, sdk_clients: dict[str, Any]
) -> None:
    model.will_say(text("a b c " * 50, delay=0.02))
    given = {"base_url": model.base_url, "transport": "sdk", **sdk_clients}
    stream = CompatibleChatOpenAI(model="m", api_key="k", **given).astream("hi")

    async with aclosing(stream) as chunks:  # type: ignore[type-var]
        async for _ in chunks:
            break

    await model.until(lambda m: m.aborted == 1)


async def test_reasoning_is_streamed_and_kept(model: ScriptedModel, chat: CompatibleChatOpenAI) -> None:
    model.will_say(reasoning("first think ") + text("then say"))

    chunks = [chunk async for chunk in chat.astream("hi")]

    whole = sum(chunks[1:], chunks[0])
    assert isinstance(whole, AIMessageChunk)
    assert (whole.additional_kwargs["reasoning_content"], whole.text) == ("first think ", "then say")
    thought = [number for number, c in enumerate(chunks) if c.additional_kwargs.get("reasoning_content")]
    said = [number for number, c in enumerate(chunks) if c.text]
    assert max(thought) < min(said)


async def test_reasoning_is_sent_back_with_its_tool_calls(
    model: ScriptedModel, chat: CompatibleChatOpenAI
) -> None:
    model.will_say(
        reasoning("I must look") + call("ls", path="/"), reasoning("done") + text("two files"), text("bye")
    )
    asked = HumanMessage("what is there?")

    step = await chat.ainvoke([asked])
    result = ToolMessage("a b", tool_call_id=step.tool_calls[0]["id"])
    answer = await chat.ainvoke([asked, step, result])
    await chat.ainvoke([asked, step, result, answer, HumanMessage("thanks")])

    last = model.requests[-1].messages
    assert last[1]["reasoning_content"] == "I must look"
    assert "reasoning_content" not in last[3], "only what led to a tool call is needed again"


async def test_a_message_without_reasoning_has_openai_format(
    model: ScriptedModel, chat: CompatibleChatOpenAI
) -> None:
    model.will_say(text("ok"))
    made = AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1"}])

    await chat.ainvoke([HumanMessage("a"), made, ToolMessage("b", tool_call_id="1")])

    assert "reasoning_content" not in model.requests[0].messages[1]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("reasoning", "hm"), ("reasoning_details", [{"type": "reasoning.text", "text": "hm"}])],
)
async def test_servers_may_want_reasoning_under_another_name(
    model: ScriptedModel, pool: SessionPool, key: Any, expected: object
) -> None:
    model.will_say(reasoning("hm") + call("ls"), text("ok"))
    chat = CompatibleChatOpenAI(model="m", api_key="k", base_url=model.base_url, pool=pool, reasoning_key=key)

    step = await chat.ainvoke("a")
    await chat.ainvoke([HumanMessage("a"), step, ToolMessage("b", tool_call_id=step.tool_calls[0]["id"])])

    assert model.requests[1].messages[1][key] == expected


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "other"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"text": "m"}]},
    ],
)
def test_reasoning_is_found_under_its_other_names(delta: dict[str, Any]) -> None:
    chat = CompatibleChatOpenAI(model="m", api_key="k", transport="sdk")

    chunk = chat._convert_chunk_to_generation_chunk({"choices": [{"delta": delta}]}, AIMessageChunk, None)

    assert chunk is not None
    assert chunk.message.additional_kwargs["reasoning_content"] == "hm"


def test_signatures_of_tool_calls_survive_the_round_trip() -> None:
    chat = CompatibleChatOpenAI(model="m", api_key="k", transport="sdk")
    signed = {"google": {"thought_signature": "s1"}}
    made = {"id": "c1", "index": 0, "function": {"name": "ls", "arguments": "{}"}, "extra_content": signed}

    chunk = chat._convert_chunk_to_generation_chunk(
        {"choices": [{"delta": {"tool_calls": [made]}}]}, AIMessageChunk, None
    )

    assert chunk is not None
    sent = chat._get_request_payload([HumanMessage("a"), chunk.message])["messages"][1]
    assert sent["tool_calls"][0]["extra_content"] == signed


async def test_a_model_with_its_own_connections_can_close_them(model: ScriptedModel) -> None:
    model.will_say(text("ok"))
    chat = CompatibleChatOpenAI(model="m", api_key="k", base_url=model.base_url)

    await chat.ainvoke("hi")
    await chat.aclose()

    assert model.connections == 1


def test_messages_are_sent_as_langchain_itself_would_send_them() -> None:
    given: dict[str, Any] = {"model": "m", "base_url": "http://127.0.0.1:1/v1", "api_key": "k"}
    call_it = {"name": "t", "args": {"x": 1}, "id": "1", "type": "tool_call"}
    messages = [
        SystemMessage("rules"),
        HumanMessage("one"),
        AIMessage("two", additional_kwargs={"reasoning_content": "hm"}),
        HumanMessage("three", name="ada"),
        AIMessage("", tool_calls=[call_it]),
        ToolMessage("four", tool_call_id="1"),
        HumanMessage([{"type": "text", "text": "five"}]),
        HumanMessage([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]),
        HumanMessage([{"type": "image", "source_type": "url", "url": "https://x.example.org/a.png"}]),
        HumanMessage([]),
        AIMessage("six", additional_kwargs={"audio": {"id": "a"}}),
        HumanMessage("", additional_kwargs={"hide_from_ui": True}),
    ]

    ours = CompatibleChatOpenAI(**given)._get_request_payload(messages)
    theirs = ChatOpenAI(**given)._get_request_payload(messages)

    assert ours["messages"] == theirs["messages"]
    assert len(ours["messages"]) == len(messages)


def test_the_responses_api_gets_all_messages() -> None:
    chat = CompatibleChatOpenAI(
        model="m", base_url="http://127.0.0.1:1/v1", api_key="k", use_responses_api=True
    )

    payload = chat._get_request_payload([HumanMessage("one"), AIMessage("two"), HumanMessage("three")])

    assert [each["role"] for each in payload["input"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize("transport", ["lean", "sdk"])
async def test_a_long_call_in_pieces_holds_nobody_up(
    transport: str, is_broken: bool, model: ScriptedModel, pool: SessionPool, sdk_clients: dict[str, Any]
) -> None:
    kind: Any = (
        CompatibleChatOpenAI if transport == "lean" else reporting_malformed_calls(CompatibleChatOpenAI)
    )
    given = {"base_url": model.base_url, "transport": transport, "pool": pool, **sdk_clients}
    chat = kind(model="m", api_key="k", max_retries=0, **given)
    arguments = json.dumps({"content": "word " * 16_000})
    model.will_say(raw_call("write_file", arguments + " and more" * 1000 if is_broken else arguments))

    async with LoopWatch():
        answer = await chat.ainvoke("hi", stream=True)

    if is_broken:
        assert [each["name"] for each in answer.invalid_tool_calls] == ["write_file"]
        assert answer.additional_kwargs["broken_calls"] == [answer.invalid_tool_calls[0]["id"]]
    else:
        assert [each["args"] for each in answer.tool_calls] == [json.loads(arguments)]


Server = Callable[[int | None], Awaitable[str]]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Return a way to start a server that answers everything with one status, or never."""
    running: list[asyncio.Server] = []

    async def start(status: int | None) -> str:
        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if status is None:
                await reader.read()
            else:
                head = f"HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                writer.write(head.encode())
            writer.close()

        running.append(await asyncio.start_server(reply, "127.0.0.1", 0))
        return f"http://127.0.0.1:{running[-1].sockets[0].getsockname()[1]}/v1"

    yield start
    for one in running:
        one.close()


def entry(base_url: str, name: str = "m", **more: object) -> ModelSettings:
    given = {"use": "langchain_openai:ChatOpenAI", "model": "m", "api_key": "k", "base_url": base_url}
    return ModelSettings.model_validate({"name": name, **given, **more})


async def problem(*entries: ModelSettings, timeout_seconds: float = 30) -> str | None:
    factory = ModelFactory(entries, env={})
    try:
        return await connection_problem(factory.create(), timeout_seconds=timeout_seconds)
    finally:
        await factory.aclose()


async def test_a_server_that_lists_its_models_is_fine_and_no_model_was_asked(model: ScriptedModel) -> None:
    assert await problem(entry(model.base_url)) is None
    assert model.requests == []


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told(server: Server, status: int) -> None:
    assert "refuses the key; check `api_key`" in str(await problem(entry(await server(status))))


@pytest.mark.parametrize("status", [404, 405, 429, 500])
async def test_a_server_without_a_list_is_there_all_the_same(server: Server, status: int) -> None:
    assert await problem(entry(await server(status))) is None


async def test_a_silent_server_is_not_waited_for_long(server: Server) -> None:
    said = await problem(entry(await server(None)), timeout_seconds=0.2)

    assert "did not answer within 0.2 s" in str(said)


async def test_of_a_model_with_fallbacks_the_first_is_looked_at(model: ScriptedModel) -> None:
    gone = entry("http://127.0.0.1:9/v1", "gone", fallbacks=["m"])

    assert "127.0.0.1:9/v1 cannot be reached" in str(await problem(gone, entry(model.base_url)))


async def test_a_model_without_a_server_has_nothing_to_reach() -> None:
    assert await problem(OFFLINE) is None
