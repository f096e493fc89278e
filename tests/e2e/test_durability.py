"""What survives: readers that vanish, servers that are stopped, servers that are killed."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import GatewayProcess, parse_sse
from support.model_server import ScriptedModel, call, calls, text
from support.waiting import completed, stored, until

LOG = "/mnt/user-data/workspace/log.txt"
MODES = ["values", "messages-tuple", "updates", "custom"]


def ask(question: str, **more: Any) -> dict[str, Any]:
    message = {"type": "human", "content": question}
    return {"input": {"messages": [message]}, "stream_mode": MODES, "on_disconnect": "continue", **more}


@pytest.fixture
def server(tmp_path: Path, model: ScriptedModel) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path, model.base_url).start()
    yield process
    process.kill()


def client(server: GatewayProcess) -> httpx.AsyncClient:
    return server.client()


async def read_some(api: httpx.AsyncClient, question: str, word: str) -> tuple[str, str]:
    """Start a run, read up to a word, leave; return the run's path and what was read."""
    seen = ""
    async with api.stream("POST", "/threads/t1/runs/stream", json=ask(question)) as response:
        path = response.headers["content-location"].removeprefix("/api")
        async for chunk in response.aiter_text():
            seen += chunk
            if word in seen[: seen.rfind("\n\n") + 2]:
                break
    return path, seen[: seen.rindex("\n\n") + 2]


async def ended(api: httpx.AsyncClient, path: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        run: dict[str, Any] = (await api.get(path)).json()
        return None if run["status"] in ("pending", "running") else run

    run: dict[str, Any] = await until(look)
    return run


async def test_a_run_goes_on_without_its_reader_and_can_be_read_after_a_restart(
    server: GatewayProcess, model: ScriptedModel
) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    model.will_say(text(words, delay=0.02))
    async with client(server) as api:
        path, first = await read_some(api, "go", "word5")
        assert (await ended(api, path))["status"] == "success"
    server.stop()
    server.start()

    async with client(server) as api:
        last_id = parse_sse(first)[-1][2]
        rest = await api.get(f"{path}/stream", headers={"Last-Event-ID": last_id or ""})
        whole = await api.get(f"{path}/stream")
        state = (await api.get("/threads/t1/state")).json()

    assert first + rest.text == whole.text
    events = parse_sse(whole.text)
    said = "".join(
        data[0]["content"]
        for kind, data, _ in events
        if kind == "messages" and data[0]["type"] == "AIMessageChunk"
    )
    assert said == words
    assert state["values"]["messages"][-1]["content"] == words
    assert len({event_id for _, _, event_id in events}) == len(events)


async def test_a_run_survives_kill_9_and_finished_steps_are_not_repeated(
    server: GatewayProcess, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.will_say(
        call(
            "write_file",
            description="a",
            path="/mnt/user-data/workspace/log.txt",
            content="one\n",
            append=True,
        ),
        text("slow " * 20).held(gate, after=5),
        text("The end."),
    )
    async with client(server) as api:
        path, first = await read_some(api, "go", "slow")
        await model.until(lambda scripted: len(scripted.requests) == 2)
        await stored(api)
        server.kill()
    gate.set()
    server.start()

    async with client(server) as api:
        run = await ended(api, path)
        state = (await api.get("/threads/t1/state")).json()
        last_id = parse_sse(first)[-1][2]
        rest = parse_sse((await api.get(f"{path}/stream", headers={"Last-Event-ID": last_id or ""})).text)
    assert (run["status"], run["attempt"]) == ("success", 2)
    assert [message["type"] for message in state["values"]["messages"]] == ["human", "ai", "tool", "ai"]
    assert state["values"]["messages"][-1]["content"] == "The end."
    workspace = server.home / ".deer-flow/users/default/threads/t1/user-data/workspace"
    assert (workspace / "log.txt").read_text() == "one\n"
    assert [data["attempt"] for kind, data, _ in rest if kind == "metadata"] == [2]
    assert rest[-1][0] == "end"


async def test_finished_sub_agents_are_not_run_again_after_kill_9(
    server: GatewayProcess, model: ScriptedModel
) -> None:
    task = {"description": "part", "subagent_type": "general-purpose"}
    model.on("Quick part", text("quick result"))
    gate = threading.Event()
    model.on("Slow part", text("slow result").held(gate))
    model.will_say(
        calls(call("task", **task, prompt="Quick part"), call("task", **task, prompt="Slow part")),
        text("Both are done."),
    )
    async with client(server) as api:
        body = ask("go", context={"subagent_enabled": True})
        run = (await api.post("/threads/t1/runs", json=body)).json()
        path = f"/threads/t1/runs/{run['run_id']}"
        await model.until(lambda scripted: len(scripted.requests) == 3)
        await completed(api, path, 1)
        server.kill()
    gate.set()
    server.start()

    async with client(server) as api:
        assert (await ended(api, path))["status"] == "success"
        state = (await api.get("/threads/t1/state")).json()
    tools = [message["content"] for message in state["values"]["messages"] if message["type"] == "tool"]
    assert ["quick result" in tools[0], "slow result" in tools[1]] == [True, True]
    asked = [request.last_message for request in model.requests]
    assert sum("Quick part" in question for question in asked) == 1
    assert sum("Slow part" in question for question in asked) == 2


async def test_a_second_process_on_the_same_home_disturbs_nothing(
    server: GatewayProcess, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("slow one", text("slow " * 40).held(gate, after=20))
    model.on("quick one", text("quick answer"))
    async with client(server) as api:
        run = (await api.post("/threads/t1/runs", json=ask("slow one"))).json()

        code, output = await _deerflow_run(server, "quick one")
        gate.set()

        ended_run = await ended(api, f"/threads/t1/runs/{run['run_id']}")
    assert (code, output.strip()) == (0, "quick answer")
    assert (ended_run["status"], ended_run["attempt"]) == ("success", 1)


async def _deerflow_run(server: GatewayProcess, task: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *server.command("run", task), env=server.env, cwd=server.home, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, output.decode()
