"""How many model calls run at once, over HTTP."""

import asyncio
import threading
from pathlib import Path

import httpx
from support.gateway import parse_sse, running_gateway
from support.model_server import ScriptedModel, call, calls, raw_call, text

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
            await model.until(lambda server: server.in_flight == 2)
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
            await model.until(lambda server: server.in_flight == 1)
            await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?wait=1")
            answer = await start(api, "t2")

    assert answer.json()["messages"][-1]["content"] == "Hello."


async def test_an_agent_whose_results_stop_being_new_is_told_so(tmp_path: Path, model: ScriptedModel) -> None:
    words = "deer live in forests and eat leaves grass bark and young shoots all year round"
    reads = [
        call("read_file", description="r", path=f"/mnt/user-data/workspace/{number}.txt")
        for number in range(3)
    ]
    model.will_say(*reads, text("They eat leaves."))
    progress = {"enabled": True}

    with running_gateway(tmp_path, model.base_url, tool_progress=progress) as gateway:
        assert gateway.deerflow is not None
        folders = gateway.deerflow.folders("default", "t1")
        folders.create()
        for number in range(3):
            (folders.workspace / f"{number}.txt").write_text(f"{words} {number}")
        async with gateway.client() as api:
            await api.post("/threads", json={"thread_id": "t1"})
            body = {**ASKED, "stream_mode": ["custom"]}
            events = parse_sse((await api.post("/threads/t1/runs/stream", json=body)).text)

    told = [data for name, data, _ in events if name == "custom" and data["type"] == "tool_stagnation"]
    assert [(each["tool"], each["count"]) for each in told] == [("read_file", 3)]
    assert "The last 3 results of read_file say almost the same" in str(model.requests[-1].messages[-1])
    assert "say almost the same" not in str(model.requests[-2].messages[-1])


async def test_arguments_that_nothing_can_store_are_the_models_mistake(
    tmp_path: Path, model: ScriptedModel
) -> None:
    odd = [
        '{"path": "/mnt/user-data/workspace/a", "start_line": 1' + "0" * 30 + "}",
        '{"path": "/mnt/user-data/workspace/a", "start_line": 1' + "0" * 5000 + "}",
        '{"path": ' + "[" * 900 + "]" * 900 + "}",
        "[" * 100_000,
        '{"path": "\\ud800"}',
        '{"path": "/mnt/user-data/workspace/a", "start_line": NaN}',
    ]
    made = [raw_call(name, arguments) for arguments in odd for name in ("read_file", "no_such_tool")]
    model.will_say(calls(*made), text("I will try something else."))

    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as api:
            answer = (await start(api, "t1")).json()["messages"]

    assert answer[-1]["content"] == "I will try something else."
    results = [message for message in answer if message["type"] == "tool"]
    assert [message["status"] for message in results] == ["error"] * len(made)


async def test_an_answers_calls_run_a_few_at_a_time(tmp_path: Path, model: ScriptedModel) -> None:
    steps = "echo + >> steps && for i in 1 2 3; do cat steps > /dev/null; done; echo - >> steps"
    made = [call("bash", description="", command=f"{steps} # {number}") for number in range(6)]
    model.will_say(calls(*made), call("bash", description="", command="cat steps"), text("Done."))
    sections = {
        "sandbox": {"use": "local", "allow_host_bash": True},
        "guardrails": {"rules": [{"tool": "bash", "action": "allow"}]},
        "runs": {"max_parallel_tool_calls": 2},
    }

    with running_gateway(tmp_path, model.base_url, **sections) as gateway:
        async with gateway.client() as api:
            messages = (await start(api, "t1")).json()["messages"]

    marks = messages[-2]["content"].split()
    at_once = [marks[:end].count("+") - marks[:end].count("-") for end in range(len(marks) + 1)]
    assert marks.count("+") == 6
    assert max(at_once) <= 2
