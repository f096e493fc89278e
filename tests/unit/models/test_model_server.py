"""The scripted model server does what the other tests rely on."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from support.model_server import (
    Reply,
    ScriptedModel,
    call,
    calls,
    cut,
    disconnect,
    malformed,
    reasoning,
    silence,
    status,
    text,
    usage,
)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


def asking(*contents: str, stream: bool = True, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content} for content in contents]
    return {"model": "m", "messages": messages, "stream": stream, **more}


async def ask(
    http: aiohttp.ClientSession, model: ScriptedModel, body: dict[str, Any]
) -> list[dict[str, Any]]:
    async with http.post(model.base_url + "/chat/completions", json=body) as response:
        raw = await response.text()
        if not body["stream"] or response.status != 200:
            return [
                {"status": response.status, "retry": response.headers.get("Retry-After"), **json.loads(raw)}
            ]
        frames = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
        assert frames[-1] == "[DONE]"
        return [json.loads(frame) for frame in frames[:-1]]


def said(chunks: list[dict[str, Any]], key: str = "content") -> str:
    return "".join(c["choices"][0]["delta"].get(key) or "" for c in chunks if c["choices"])


async def test_text_comes_token_by_token_and_usage_only_when_asked(
    http: aiohttp.ClientSession, model: ScriptedModel
) -> None:
    model.will_say(text("Hello big world, 你好"), reasoning("hm ") + text("yes") + usage(7, 2))

    first = await ask(http, model, asking("hi"))
    second = await ask(http, model, asking("hi", stream_options={"include_usage": True}))

    assert said(first) == "Hello big world, 你好"
    assert len(first) > 5
    assert "usage" not in first[-1]
    assert (said(second, "reasoning_content"), said(second)) == ("hm ", "yes")
    assert second[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert model.connections == 1, "the connection is kept alive"


async def test_tool_calls_come_in_pieces_or_whole(http: aiohttp.ClientSession, model: ScriptedModel) -> None:
    both = calls(call("bash", command="echo 42"), call("ls", path="/"))
    model.will_say(both, both)

    chunks = await ask(http, model, asking("hi"))
    (whole,) = await ask(http, model, asking("hi", stream=False))

    arguments = {0: "", 1: ""}
    for chunk in chunks:
        for piece in chunk["choices"][0]["delta"].get("tool_calls", []):
            arguments[piece["index"]] += piece["function"]["arguments"]
    assert [json.loads(a) for a in arguments.values()] == [{"command": "echo 42"}, {"path": "/"}]
    made = whole["choices"][0]["message"]["tool_calls"]
    assert [c["function"]["name"] for c in made] == ["bash", "ls"]
    assert len({c["id"] for c in made}) == 2


async def test_rules_answer_by_content_and_step(http: aiohttp.ClientSession, model: ScriptedModel) -> None:
    model.on("part 1", call("ls", path="/"), text("one"))
    model.on(
        lambda request: "part 2" in request.asked, lambda request: text(f"two of {len(request.messages)}")
    )
    model.will_say(text("lead"))
    later = asking("part 1")
    later["messages"] += [{"role": "assistant", "content": ""}, {"role": "tool", "content": "x"}]

    answers = await asyncio.gather(
        *(ask(http, model, body) for body in (asking("part 2"), later, asking("part 1"), asking("else")))
    )

    assert [said(a) for a in answers] == ["two of 1", "one", "", "lead"]
    assert model.unsaid == 0


async def test_an_exhausted_script_says_so(http: aiohttp.ClientSession, model: ScriptedModel) -> None:
    (answer,) = await ask(http, model, asking("what now?"))

    assert answer["status"] == 500
    assert "script is exhausted" in answer["error"]["message"]
    assert "what now?" in answer["error"]["message"]


async def test_faults(http: aiohttp.ClientSession, model: ScriptedModel) -> None:
    model.will_say(status(429, retry_after=3), cut("a b c", after=2), malformed("a b", after=1), disconnect())

    (limited,) = await ask(http, model, asking("hi"))
    assert (limited["status"], limited["retry"]) == (429, "3")
    with pytest.raises(aiohttp.ClientPayloadError):
        await ask(http, model, asking("hi"))
    with pytest.raises(json.JSONDecodeError):
        await ask(http, model, asking("hi"))
    async with aiohttp.ClientSession() as fresh:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(fresh, model, asking("hi"))


@pytest.mark.parametrize("reply", [silence(), silence("a b c", after=1), text("a b", delay=60)])
async def test_a_client_that_leaves_is_counted(
    http: aiohttp.ClientSession, model: ScriptedModel, reply: Reply
) -> None:
    model.will_say(reply)
    asked = asyncio.create_task(ask(http, model, asking("hi")))
    await model.until(lambda m: m.in_flight == 1)

    asked.cancel()

    await model.until(lambda m: m.aborted == 1 and m.in_flight == 0)


async def test_a_held_reply_waits_for_its_gate(http: aiohttp.ClientSession, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.will_say(text("a b c").held(gate, after=2), text("b").held(gate))
    asked = [asyncio.create_task(ask(http, model, asking("hi"))) for _ in range(2)]
    await model.until(lambda m: m.most_in_flight == 2)
    assert not any(one.done() for one in asked)

    gate.set()

    assert sorted([said(await one) for one in asked]) == ["a b c", "b"]


async def test_directives_direct(http: aiohttp.ClientSession, model: ScriptedModel) -> None:
    answer = await ask(http, model, asking("[[bench answer n=3]]"))
    tools = asking("[[bench tools k=1 n=1]]", stream=False)
    (step,) = await ask(http, model, tools)
    tools["messages"] += [{"role": "assistant"}, {"role": "tool", "content": "ok"}]
    (last,) = await ask(http, model, tools)
    (fanout,) = await ask(http, model, asking("[[bench fanout total=3 per=2 sub=5]]", stream=False))

    assert said(answer) == "zq0 zq1 zq2 "
    assert step["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "write_file"
    assert last["choices"][0]["message"]["content"] == "zq0 "
    prompts = [json.loads(c["function"]["arguments"]) for c in fanout["choices"][0]["message"]["tool_calls"]]
    assert [p["prompt"] for p in prompts] == [f"Do part {i}. [[bench answer n=5 first=5]]" for i in (0, 1)]


async def test_stopping_with_open_calls_is_quick(http: aiohttp.ClientSession) -> None:
    model = ScriptedModel().start()
    model.will_say(silence())
    asked = asyncio.create_task(ask(http, model, asking("hi")))
    await model.until(lambda m: m.in_flight == 1)

    await asyncio.to_thread(model.stop)

    with pytest.raises(aiohttp.ClientError):
        await asked
