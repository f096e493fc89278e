"""Values that no client should send are refused with a reason, or ignored."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from support.gateway import parse_sse
from support.model_server import ScriptedModel, text

from deerflow.gateway.routers.run_queries import _header_text


def saying(words: str, **more: Any) -> dict[str, Any]:
    return {"input": {"messages": [{"role": "user", "content": words}]}, **more}


async def ran(api: httpx.AsyncClient, scripted: ScriptedModel, thread: str) -> str:
    scripted.reset()
    scripted.will_say(text("Hello."))
    await api.post("/threads", json={"thread_id": thread})
    response = await api.post(f"/threads/{thread}/runs/wait", json=saying("Hi"))
    assert response.status_code == 200, response.text
    return str(response.headers["content-location"].rsplit("/", 1)[-1])


@pytest.mark.parametrize("last", ["1-" + "9" * 30, "1-" + "9" * 5000, "9" * 5000 + "-", "--", "x-y"])
async def test_an_event_id_that_is_none_brings_the_whole_log(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str, last: str
) -> None:
    run = await ran(api, scripted, thread)
    address = f"/threads/{thread}/runs/{run}/stream"

    whole = await api.get(address)
    answer = await api.get(address, headers={"Last-Event-ID": last})

    assert (answer.status_code, answer.text) == (200, whole.text)
    assert parse_sse(whole.text)[-1][0] == "end"


async def test_a_thread_is_followed_from_an_event_id_that_is_none(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await ran(api, scripted, thread)
    scripted.will_say(text("Again."))

    odd = {"Last-Event-ID": "9" * 5000 + "-1"}
    async with api.stream("GET", f"/threads/{thread}/stream", headers=odd) as following:
        await api.post(f"/threads/{thread}/runs/wait", json=saying("Once more"))
        lines = [line async for line in _until(following, "Again.")]

    assert following.status_code == 200
    assert any("Again." in line for line in lines)


@pytest.mark.parametrize("back_ns", [0, 3600 * 10**9])
async def test_a_thread_is_followed_from_an_event_that_is_no_older_than_those_behind_it(
    api: httpx.AsyncClient,
    scripted: ScriptedModel,
    thread: str,
    monkeypatch: pytest.MonkeyPatch,
    back_ns: int,
) -> None:
    run = await ran(api, scripted, thread)
    log = await api.get(f"/threads/{thread}/runs/{run}/stream")
    last = [line.removeprefix("id: ") for line in log.text.splitlines() if line.startswith("id: ")][-1]
    now_ns = int(last.partition("-")[0]) * 1_000_000 - back_ns
    scripted.will_say(text("Again."))

    with monkeypatch.context() as clock:
        clock.setattr(time, "time_ns", lambda: now_ns)
        await api.post(f"/threads/{thread}/runs/wait", json=saying("Once more"))
    async with api.stream("GET", f"/threads/{thread}/stream", headers={"Last-Event-ID": last}) as following:
        lines = [line async for line in _until(following, "Again.")]

    assert not any('"content":"Hello."' in line and "AIMessageChunk" in line for line in lines)
    assert any('"Once more"' in line for line in lines)


async def test_a_run_of_another_day_does_not_keep_followers_from_todays(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await ran(api, scripted, thread)
    scripted.will_say(text("Today."))
    later = (await api.post(f"/threads/{thread}/runs", json=saying("Later", after_seconds=86_400))).json()

    async with api.stream("GET", f"/threads/{thread}/stream") as following:
        await api.post(f"/threads/{thread}/runs/wait", json=saying("Now"))
        lines = [line async for line in _until(following, "Today.")]
    await api.post(f"/threads/{thread}/runs/{later['run_id']}/cancel")

    assert any("Today." in line for line in lines)


@pytest.mark.parametrize("label", ["a.b", "\x00", "", "x" * 257])
async def test_a_part_of_a_namespace_that_is_none_is_refused(api: httpx.AsyncClient, label: str) -> None:
    item = {"namespace": [label], "key": "k", "value": {}}

    answers = [
        await api.put("/store/items", json=item),
        await api.post("/store/items/search", json={"namespace_prefix": [label]}),
        await api.post("/store/namespaces", json={"prefix": [label]}),
        await api.request("DELETE", "/store/items", json=item),
    ]

    assert [answer.status_code for answer in answers] == [422] * 4


async def test_what_cannot_be_in_a_namespace_is_not_looked_for(api: httpx.AsyncClient) -> None:
    refused = await api.get("/store/items", params={"namespace": "a\x00b", "key": "k"})
    nowhere = await api.get("/store/items", params={"namespace": "a.b", "key": "a\x00b"})

    assert refused.status_code == 422
    assert (nowhere.status_code, nowhere.json()) == (200, None)


async def test_a_model_that_is_not_there_is_a_fault_of_the_request(
    api: httpx.AsyncClient, thread: str
) -> None:
    await api.post("/threads", json={"thread_id": thread})

    refused = await api.post(f"/threads/{thread}/runs", json=saying("Hi", context={"model_name": "nope"}))

    assert refused.status_code == 400
    assert "model 'nope' not found; there are: scripted" in refused.json()["detail"]


async def test_what_was_still_to_be_done_is_cleared_by_an_end_without_values(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await api.post("/threads", json={"thread_id": thread})
    await api.post(f"/threads/{thread}/runs/wait", json=saying("Hi", interrupt_before=["model"]))
    before = (await api.get(f"/threads/{thread}/state")).json()

    answer = await api.post(f"/threads/{thread}/state", json={"values": None, "as_node": "__end__"})

    assert before["next"] == ["model"]
    assert (answer.status_code, answer.json()["next"]) == (200, [])


def test_a_header_is_one_line_whatever_files_are_called() -> None:
    assert _header_text("all but a\r\nSet-Cookie: b, ü") == "all but a??Set-Cookie: b, ?"


async def _until(following: httpx.Response, words: str) -> Any:
    async with asyncio.timeout(60):
        async for line in following.aiter_lines():
            yield line
            if words in line:
                return
