"""Servers that nearly speak the protocol: what can be understood is, and the rest is explained."""

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessageChunk
from support.raw_server import raw_server

from deerflow.models.compatible import CompatibleChatOpenAI
from deerflow.models.explain import explain
from deerflow.models.pool import SessionPool
from deerflow.models.tool_call_assembly import BROKEN_CALLS

Make = Callable[..., CompatibleChatOpenAI]
EVENTS = "text/event-stream"
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def make(pool: SessionPool) -> Make:
    def make(base_url: str, **given: Any) -> CompatibleChatOpenAI:
        fixed = {"model": "m", "api_key": "k", "pool": pool, "max_retries": 0}
        return CompatibleChatOpenAI(base_url=base_url, **{**fixed, **given})

    return make


def event(delta: dict[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n"


async def streamed(chat: CompatibleChatOpenAI) -> AIMessageChunk:
    first, *others = [chunk async for chunk in chat.astream("hi")]
    assert isinstance(first, AIMessageChunk)
    return first + others


async def test_half_a_call_in_an_answer_of_one_piece_is_named(make: Make) -> None:
    function = {"name": "write_file", "arguments": '{"path": "/mnt/a", "content": "half'}
    message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "length"}]}

    async with raw_server(json.dumps(body).encode()) as address:
        answer = await streamed(make(address))

    assert answer.additional_kwargs[BROKEN_CALLS] == ["c1"]


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_calls_in_an_answer_of_one_piece_are_tidied(make: Make, is_streamed: bool) -> None:
    calls = [{"function": {"name": "ls", "arguments": given}} for given in ({"p": 1}, None, None)]
    message = {"role": "assistant", "content": "", "tool_calls": [*calls, None]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}

    async with raw_server(json.dumps(body).encode()) as address:
        chat = make(address)
        answer = await (streamed(chat) if is_streamed else chat.ainvoke("hi"))

    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [
        ("ls", {"p": 1}),
        ("ls", {}),
        ("ls", {}),
    ]
    assert len({call["id"] for call in answer.tool_calls} - {None, ""}) == 3


@pytest.mark.parametrize("is_cut", [True, False])
async def test_an_answer_that_said_it_is_finished_counts_though_its_end_never_comes(
    make: Make, is_cut: bool
) -> None:
    body = event({"content": "all"}) + event({}, finish="stop")
    head = "text/event-stream\r\ntransfer-encoding: chunked" if is_cut else EVENTS
    sent = f"{len(body):x}\r\n".encode() + body + b"\r\n" if is_cut else body

    async with raw_server(sent, kind=head, stays_open=not is_cut) as address:
        answer = await streamed(make(address, stream_chunk_timeout=4.0))

    assert answer.text == "all"


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"<html>log in</html>", "text/html", "no event stream but text/html; check `base_url`"),
        (DONE, EVENTS, "there is nothing in it"),
        (b'data: {"object": "error", "message": "no room"}\n\n', EVENTS, "no room"),
        (b'event: error\ndata: {"code": "Arrears", "message": "pay first"}\n\n', EVENTS, "pay first"),
        (
            b'{"choices": null, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}',
            "application/json",
            "login fail",
        ),
        (b'{"choices": ["a"]}', "application/json", "no choices in it"),
        (b'{"choices": [{"message": "a"}]}', "application/json", "no chunk"),
    ],
)
async def test_what_is_no_answer_is_explained(make: Make, body: bytes, kind: str, said: str) -> None:
    async with raw_server(body, kind=kind) as address:
        with pytest.raises(openai.APIError) as failed:
            await streamed(make(address))

    told = explain(failed.value)
    assert told is not None
    assert said in str(told)


@pytest.mark.parametrize("message", [None, "a", {"tool_calls": "ls"}, {"tool_calls": {"ls": {}}}])
async def test_a_whole_answer_without_a_message_is_explained(make: Make, message: Any) -> None:
    async with raw_server(json.dumps({"choices": [{"index": 0, "message": message}]}).encode()) as address:
        with pytest.raises(openai.APIError, match="there is no message in it"):
            await make(address).ainvoke("hi")


async def test_a_server_that_sends_us_elsewhere_is_explained(make: Make) -> None:
    async with raw_server(b"<html>hello</html>", kind="text/html") as other:
        moved = f"text/plain\r\nlocation: {other}/chat/completions"
        async with raw_server(b"", kind=moved, status="301 Moved Permanently") as address:
            with pytest.raises(openai.APIError, match="redirects to") as failed:
                await streamed(make(address))

    assert other.removesuffix("/v1") in str(failed.value)


async def test_a_password_of_a_proxy_is_not_shown(make: Make) -> None:
    async with raw_server(b"", status="407 Proxy Authentication Required") as address:
        proxy = address.replace("://", "://user:hunter2@").removesuffix("/v1")
        with pytest.raises(openai.APIError) as failed:
            await streamed(make("https://models.example/v1", openai_proxy=proxy))

    assert "407" in str(failed.value)
    assert "hunter2" not in str(failed.value)
