"""The lean transport: what it sends, how it fails, tries again and lets go."""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import openai
import pytest
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langchain_core.messages import AIMessageChunk
from langchain_openai import StreamChunkTimeoutError
from support.model_server import (
    Reply,
    ScriptedModel,
    broken,
    call,
    cut,
    disconnect,
    malformed,
    silence,
    status,
    text,
    unfinished,
    usage,
)
from support.raw_server import raw_server

from deerflow.models.compatible import CompatibleChatOpenAI
from deerflow.models.openai_transport import Endpoint
from deerflow.models.pool import SessionPool

Make = Callable[..., CompatibleChatOpenAI]


class Naps(list[float]):
    """Records how long would have been slept."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    naps = Naps()
    build = Endpoint.__init__

    def init(self: Endpoint, **given: Any) -> None:
        build(self, **{"sleep": naps, **given})

    monkeypatch.setattr(Endpoint, "__init__", init)
    return naps


@pytest.fixture
def make(model: ScriptedModel, pool: SessionPool, sdk_clients: dict[str, Any]) -> Make:
    def make(**given: Any) -> CompatibleChatOpenAI:
        fixed = {"model": "m", "base_url": model.base_url, "pool": pool, **sdk_clients}
        return CompatibleChatOpenAI(
            **{**fixed, "api_key": "secret-key", "stream_usage": True, "max_retries": 0, **given}
        )

    return make


async def streamed(chat: CompatibleChatOpenAI, question: str = "hi") -> AIMessageChunk:
    whole: AIMessageChunk | None = None
    async for chunk in chat.astream(question):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


async def test_an_answer_streams_with_usage_and_the_connection_is_kept(
    model: ScriptedModel, make: Make
) -> None:
    model.will_say(text("one two three") + usage(11, 3), call("bash", command="ls"))
    chat = make()

    answer = await streamed(chat)
    step = await streamed(chat)

    assert answer.text == "one two three"
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (11, 3)
    assert answer.response_metadata["finish_reason"] == "stop"
    assert [(c["name"], c["args"]) for c in step.tool_calls] == [("bash", {"command": "ls"})]
    assert (model.connections, model.aborted) == (1, 0)


async def test_settings_reach_the_server(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("yes"))
    chat = make(
        default_headers={"X-Team": "deer"},
        default_query={"version": "2"},
        organization="org-1",
        temperature=0.3,
        extra_body={"thinking": {"type": "enabled"}},
        logit_bias={7: 1},
    )

    await chat.ainvoke("hi", extra_headers={"X-Call": "1"})

    (request,) = model.requests
    assert request.path == "/v1/chat/completions?version=2"
    assert request.headers["authorization"] == "Bearer secret-key"
    assert request.headers["openai-organization"] == "org-1"
    assert (request.headers["x-team"], request.headers["x-call"]) == ("deer", "1")
    assert request.body["thinking"] == {"type": "enabled"}
    assert (request.body["temperature"], request.body["logit_bias"]) == (0.3, {"7": 1})
    assert "extra_headers" not in request.body


async def test_keys_may_be_functions(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("a"), text("b"))

    async def later() -> str:
        return "from-later"

    await make(api_key=lambda: "from-now").ainvoke("hi")
    await make(api_key=later).ainvoke("hi")

    assert [r.headers["authorization"] for r in model.requests] == ["Bearer from-now", "Bearer from-later"]


async def test_half_a_surrogate_pair_does_not_stop_a_call(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("ok"))

    await make().ainvoke("broken \udc80 text")

    assert model.requests[0].last_message == "broken ? text"


def test_a_synchronous_call_works_too(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("sync"))

    assert make().invoke("hi").text == "sync"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (status(401), ModelAuthenticationError),
        (status(400), openai.BadRequestError),
        (status(400, message="context_length_exceeded"), ContextOverflowError),
        (status(403), openai.PermissionDeniedError),
        (status(404), openai.NotFoundError),
        (status(409), openai.ConflictError),
        (status(422), openai.UnprocessableEntityError),
        (status(429), ModelRateLimitError),
        (status(500), openai.InternalServerError),
        (status(503), openai.InternalServerError),
        (disconnect(), ModelConnectionError),
        (cut("a b c", after=2), ModelConnectionError),
        (unfinished("a b c", after=2), ModelConnectionError),
        (malformed("a b c", after=2), ModelConnectionError),
        (broken("overloaded", "a b", after=1), openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_faults_are_the_sdks_own_errors(
    model: ScriptedModel, make: Make, reply: Reply, expected: type[Exception], is_streamed: bool
) -> None:
    model.will_say(reply)
    chat = make()

    with pytest.raises(expected) as caught:
        await (streamed(chat) if is_streamed else chat.ainvoke("hi"))

    assert isinstance(caught.value, openai.APIError)
    assert "secret-key" not in repr(caught.value) + str(caught.value)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (cut("a b", after=1), "cut"),
        (unfinished("a b", after=1), "ended in the middle"),
        (malformed("a b", after=1), "malformed JSON"),
    ],
)
async def test_a_broken_stream_says_what_is_broken(
    model: ScriptedModel, make: Make, reply: Reply, words: str
) -> None:
    model.will_say(reply)

    with pytest.raises(openai.APIConnectionError, match=words):
        await streamed(make())


async def test_a_server_that_is_not_there_is_named(make: Make) -> None:
    with pytest.raises(ModelConnectionError, match=r"127\.0\.0\.1:9"):
        await make(base_url="http://127.0.0.1:9/v1").ainvoke("hi")


@pytest.mark.parametrize(
    "reply",
    [status(429), status(500), status(503), status(408), disconnect(), cut(), malformed(), unfinished()],
)
async def test_what_may_pass_is_tried_again(
    model: ScriptedModel, make: Make, naps: Naps, reply: Reply
) -> None:
    model.will_say(reply, reply, text("at last"))

    answer = await streamed(make(max_retries=2))

    assert answer.text == "at last"
    assert len(model.requests) == 3
    assert 0.25 <= naps[0] <= 0.5 <= naps[1] <= 1.0


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
async def test_what_will_not_pass_is_not_tried_again(
    model: ScriptedModel, make: Make, naps: Naps, code: int
) -> None:
    model.will_say(status(code), text("never"))

    with pytest.raises(openai.APIStatusError):
        await make(max_retries=2).ainvoke("hi")

    assert (len(model.requests), naps) == (1, [])


async def test_retries_end_and_the_last_error_is_raised(model: ScriptedModel, make: Make, naps: Naps) -> None:
    model.on(lambda request: True, status(500, message="down"))

    with pytest.raises(openai.InternalServerError, match="down"):
        await streamed(make(max_retries=3))

    assert (len(model.requests), len(naps)) == (4, 3)


async def test_retry_after_is_honoured(model: ScriptedModel, make: Make, naps: Naps) -> None:
    model.will_say(status(429, retry_after=7), text("now"))

    await make(max_retries=1).ainvoke("hi")

    assert naps == [7]


async def test_a_long_retry_after_is_not_waited_for(model: ScriptedModel, make: Make, naps: Naps) -> None:
    model.will_say(status(429, retry_after=3600), text("never"))

    with pytest.raises(ModelRateLimitError):
        await make(max_retries=5).ainvoke("hi")

    assert naps == []


async def test_nothing_is_retried_once_a_token_was_shown(
    model: ScriptedModel, make: Make, naps: Naps
) -> None:
    model.will_say(cut("a b c", after=2), text("never"))
    seen = []

    async def watch() -> None:
        async for chunk in make(max_retries=5).astream("hi"):
            seen.append(chunk.text)

    with pytest.raises(openai.APIConnectionError):
        await watch()

    assert "".join(seen) == "a b "
    assert (len(model.requests), naps) == (1, [])


async def test_silence_before_the_answer_is_a_time_out(model: ScriptedModel, make: Make, naps: Naps) -> None:
    model.will_say(silence(), silence("a", after=1), text("late"))
    chat = make(timeout=1, max_retries=1)

    with pytest.raises(ModelTimeoutError):
        await chat.ainvoke("hi")

    await model.until(lambda m: m.aborted == 2)


async def test_silence_in_the_middle_is_a_chunk_time_out(model: ScriptedModel, make: Make) -> None:
    model.will_say(silence("a b c", after=2))

    with pytest.raises(StreamChunkTimeoutError, match="No streaming chunk"):
        await streamed(make(stream_chunk_timeout=1))

    await model.until(lambda m: m.aborted == 1)


async def test_comments_keep_a_connection_open_but_not_for_ever(pool: SessionPool) -> None:
    hung_up = asyncio.Event()

    async def murmur(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
        writer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        hung_up.set()

    server = await asyncio.start_server(murmur, "127.0.0.1", 0)
    chat = CompatibleChatOpenAI(
        model="m",
        api_key="k",
        base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
        pool=pool,
        timeout=1,
        stream_chunk_timeout=1.5,
    )

    with pytest.raises(StreamChunkTimeoutError, match=r"1\.5s"):
        await streamed(chat)

    await hung_up.wait()
    server.close()
    await server.wait_closed()


async def test_a_slow_reader_is_no_silent_server(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("a b c", delay=0.02))
    parts = []

    async for chunk in make(stream_chunk_timeout=1.5).astream("hi"):
        if not parts:
            await asyncio.sleep(1.7)  # longer than the limit: what is tested is that this time does not count
        parts.append(chunk.text)

    assert "".join(parts) == "a b c"


async def test_a_stream_that_is_left_is_closed_at_once(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("a b c d", delay=60))
    stream = make().astream("hi")

    await anext(stream)
    await stream.aclose()

    await model.until(lambda m: m.aborted == 1 and m.in_flight == 0)


@pytest.mark.parametrize("reply", [silence(), silence("a b", after=1), text("a b", delay=60)])
async def test_a_cancelled_call_is_closed_at_once(model: ScriptedModel, make: Make, reply: Reply) -> None:
    model.will_say(reply)
    asked = asyncio.create_task(make(max_retries=3).ainvoke("hi", stream=True))
    await model.until(lambda m: m.in_flight == 1)

    asked.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asked
    await model.until(lambda m: m.aborted == 1 and m.in_flight == 0)
    assert len(model.requests) == 1


async def test_two_hundred_streams_run_at_once(model: ScriptedModel, make: Make) -> None:
    gate = threading.Event()
    model.on(lambda request: True, lambda request: text(f"to {request.asked}").held(gate, after=1))
    chat = make()

    asked = [asyncio.create_task(streamed(chat, str(number))) for number in range(200)]
    await model.until(lambda m: m.in_flight == 200, timeout=60)
    gate.set()
    answers = await asyncio.gather(*asked)

    assert [a.text for a in answers] == [f"to {number}" for number in range(200)]
    assert model.most_in_flight == 200


def test_the_same_model_serves_one_loop_after_the_other(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("first"), text("second"))
    connections = SessionPool()
    chat = make(pool=connections)

    async def ask_and_close() -> str:
        answer = await chat.ainvoke("hi")
        await connections.aclose()
        return answer.text

    assert asyncio.run(ask_and_close()) == "first"
    assert asyncio.run(ask_and_close()) == "second"


async def test_a_server_that_does_not_stream_is_understood(pool: SessionPool) -> None:
    body = {
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    async with raw_server(json.dumps(body).encode()) as address:
        chat = CompatibleChatOpenAI(model="m", api_key="k", base_url=address, pool=pool)
        answer = await streamed(chat)

    assert [c["name"] for c in answer.tool_calls] == ["ls"]
    assert answer.usage_metadata is not None


async def test_an_answer_without_end_is_refused(pool: SessionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deerflow.models.openai_transport.LARGEST_ANSWER_BYTES", 1000)
    async with raw_server(b'{"choices": [' + b" " * 5000) as address:
        chat = CompatibleChatOpenAI(model="m", api_key="k", base_url=address, pool=pool, max_retries=0)
        with pytest.raises(openai.APIConnectionError, match="longer than 1000 bytes"):
            await chat.ainvoke("hi")


async def test_response_format_goes_through_the_sdk(model: ScriptedModel, make: Make) -> None:
    model.will_say(text('{"n": 3}'))
    schema = {
        "title": "Number",
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }

    answer = await make().with_structured_output(schema, method="json_schema").ainvoke("hi")

    assert answer == {"n": 3}


async def test_response_headers_can_be_asked_for(model: ScriptedModel, make: Make) -> None:
    model.will_say(text("a"), text("b"))
    chat = make(include_response_headers=True)

    whole = await chat.ainvoke("hi")
    parts = await streamed(chat)

    assert "content-length" in {name.lower() for name in whole.response_metadata["headers"]}
    assert "content-type" in {name.lower() for name in parts.response_metadata["headers"]}
