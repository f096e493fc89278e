"""How many model calls run at once, over HTTP."""

import asyncio
import threading
from pathlib import Path

import httpx
from support.gateway import running_gateway
from support.model_server import ScriptedModel, call, calls, text

ASKED = {"input": {"messages": [{"role": "user", "content": "go"}]}}


async def start(api: httpx.AsyncClient, thread: str) -> httpx.Response:
    await api.post("/threads", json={"thread_id": thread})
    return await api.post(f"/threads/{thread}/runs/wait", json=ASKED)


async def test_calls_beyond_the_limit_wait_for_a_place(tmp_path: Path, model: ScriptedModel) -> None:
    gate = threading.Event()
    for _ in range(5):
        model.will_say(text("Hello.").held(gate))

    with running_gateway(tmp_path, model.base_url, llm_call={"max_concurrent_calls": 2}) as gateway:
        async with gateway.client() as api:
            runs = [asyncio.create_task(start(api, f"t{number}")) for number in range(5)]
            await model.until(lambda server: server.in_flight == 2, timeout=30)
            gate.set()
            answers = await asyncio.gather(*runs)

    assert [answer.json()["messages"][-1]["content"] for answer in answers] == ["Hello."] * 5
    assert (len(model.requests), model.most_in_flight) == (5, 2)


async def test_with_one_place_a_lead_agent_and_its_sub_agents_take_turns(
    tmp_path: Path, model: ScriptedModel
) -> None:
    parts = [
        call("task", description="part", prompt=f"part {number}", subagent_type="general-purpose")
        for number in range(3)
    ]
    for number in range(3):
        model.on(f"part {number}", text(f"found {number}", first=0.05))
    model.will_say(calls(*parts), text("All in."))

    with running_gateway(tmp_path, model.base_url, llm_call={"max_concurrent_calls": 1}) as gateway:
        async with gateway.client() as api, asyncio.timeout(60):
            await api.post("/threads", json={"thread_id": "t1"})
            body = {**ASKED, "context": {"subagent_enabled": True}}
            answer = await api.post("/threads/t1/runs/wait", json=body)

    assert answer.json()["messages"][-1]["content"] == "All in."
    assert (len(model.requests), model.most_in_flight) == (5, 1)


async def test_a_cancelled_call_gives_its_place_back(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(text("Never.").held(threading.Event()), text("Hello."))

    with running_gateway(tmp_path, model.base_url, llm_call={"max_concurrent_calls": 1}) as gateway:
        async with gateway.client() as api:
            await api.post("/threads", json={"thread_id": "t1"})
            run = (await api.post("/threads/t1/runs", json=ASKED)).json()
            await model.until(lambda server: server.in_flight == 1, timeout=30)
            await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?wait=1")
            answer = await start(api, "t2")

    assert answer.json()["messages"][-1]["content"] == "Hello."
