"""Tools and crashes: what had begun is not done twice behind the model's back."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import GatewayProcess, running_gateway
from support.model_server import ScriptedModel, call, calls, text
from support.waiting import logged, stored, until

SANDBOX = {"use": "local", "allow_host_bash": True}
RULES = {"rules": [{"tool": "bash", "action": "allow"}]}
LOG = "/mnt/user-data/workspace/log.txt"


@pytest.fixture
def server(tmp_path: Path, model: ScriptedModel) -> Iterator[GatewayProcess]:
    process = served(tmp_path, model, grace_seconds=2).start()
    yield process
    process.kill()


def served(home: Path, model: ScriptedModel, *, grace_seconds: float) -> GatewayProcess:
    return GatewayProcess(
        home,
        model.base_url,
        sandbox=SANDBOX,
        guardrails=RULES,
        run_ownership={"grace_seconds": grace_seconds},
    )


def client(server: GatewayProcess) -> httpx.AsyncClient:
    return server.client()


def log_of(server: GatewayProcess) -> list[str]:
    found = list(server.home.glob("**/workspace/log.txt"))
    return found[0].read_text().split() if found else []


async def written(server: GatewayProcess, lines: int) -> None:
    """Wait for a file that no server tells about."""
    await until(lambda: len(log_of(server)) >= lines)


async def start(api: httpx.AsyncClient, question: str) -> str:
    body = {"input": {"messages": [{"role": "user", "content": question}]}, "on_disconnect": "continue"}
    run: dict[str, Any] = (await api.post("/threads/t1/runs", json=body)).json()
    return f"/threads/t1/runs/{run['run_id']}"


async def ended(api: httpx.AsyncClient, path: str) -> dict[str, Any]:
    await api.get(f"{path}/join")
    run: dict[str, Any] = (await api.get(path)).json()
    return run


async def messages(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get("/threads/t1/state")).json()["values"]["messages"]
    return found


def bash(command: str) -> Any:
    return call("bash", description="x", command=command)


async def test_a_command_that_had_begun_is_not_repeated_and_the_model_is_told(
    server: GatewayProcess, model: ScriptedModel
) -> None:
    model.will_say(
        calls(
            bash(f"echo once >> {LOG}; sleep 30"),
            call("ls", description="x", path="/mnt/user-data/workspace"),
        ),
        bash(f"echo again >> {LOG}"),
        text("Checked."),
    )
    async with client(server) as api:
        path = await start(api, "go")
        await written(server, 1)
        await stored(api)
        server.kill()
    server.start()

    async with client(server) as api:
        run = await ended(api, path)
        tools = [message for message in await messages(api) if message["type"] == "tool"]
    assert (run["status"], run["attempt"]) == ("success", 2)
    assert "It may have run wholly, in part or not at all" in tools[0]["content"]
    assert tools[0]["status"] == "error"
    assert tools[1]["status"] == "success"
    assert log_of(server) == ["once", "again"]


async def test_a_tool_that_changes_nothing_is_simply_repeated(
    server: GatewayProcess, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("part", text("result").held(gate))
    task = {"description": "part", "subagent_type": "general-purpose", "prompt": "Do the part."}
    model.will_say(call("task", **task), text("Done."))
    async with client(server) as api:
        body = {
            "input": {"messages": [{"role": "user", "content": "go"}]},
            "on_disconnect": "continue",
            "context": {"subagent_enabled": True},
        }
        run = (await api.post("/threads/t1/runs", json=body)).json()
        await model.until(lambda scripted: len(scripted.requests) == 2)
        await stored(api)
        server.kill()
    gate.set()
    server.start()

    async with client(server) as api:
        assert (await ended(api, f"/threads/t1/runs/{run['run_id']}"))["status"] == "success"
        tools = [message["content"] for message in await messages(api) if message["type"] == "tool"]
    assert len(tools) == 1
    assert "result" in tools[0]


async def test_a_stopped_server_hands_its_runs_over_at_the_next_step(
    tmp_path: Path, model: ScriptedModel
) -> None:
    server = served(tmp_path, model, grace_seconds=60).start()
    go_on = tmp_path / "go-on"
    wait = f"until [ -e {go_on} ]; do sleep 0.05; done"
    model.on("go", bash(f"echo a >> {LOG}; {wait}; echo b >> {LOG}"), text("The end."))
    async with client(server) as api:
        path = await start(api, "go")
        await written(server, 1)
    server.tell(signal.SIGTERM)
    await logged(server, "handed over at their next step")
    go_on.touch()
    server.wait()  # the command has time to end: it is neither cut off nor repeated
    assert log_of(server) == ["a", "b"]
    assert len(model.requests) == 1
    server.start()

    async with client(server) as api:
        run = await ended(api, path)
        tools = [message for message in await messages(api) if message["type"] == "tool"]
    server.kill()
    assert (run["status"], run["attempt"]) == ("success", 2)
    assert (len(tools), tools[0]["status"]) == (1, "success")
    assert log_of(server) == ["a", "b"]


async def test_a_step_that_takes_too_long_is_cut_off_and_the_run_goes_on_elsewhere(
    server: GatewayProcess, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("go", text("slow answer").held(gate))
    async with client(server) as api:
        path = await start(api, "go")
        await model.until(lambda scripted: len(scripted.requests) == 1)
        started = time.monotonic()
        server.stop()
        took = time.monotonic() - started
    gate.set()
    server.start()

    async with client(server) as api:
        assert (await ended(api, path))["status"] == "success"
        assert [message["content"] for message in await messages(api)] == ["go", "slow answer"]
    assert 1.5 < took < 60


async def test_a_second_signal_ends_the_server_at_once(tmp_path: Path, model: ScriptedModel) -> None:
    server = served(tmp_path, model, grace_seconds=60).start()
    gate = threading.Event()
    model.on("go", text("slow answer").held(gate))
    async with client(server) as api:
        path = await start(api, "go")
        await model.until(lambda scripted: len(scripted.requests) == 1)
    started = time.monotonic()
    server.tell(signal.SIGTERM)
    await logged(server, "handed over at their next step")  # two signals at once would count as one
    server.stop()
    took = time.monotonic() - started
    gate.set()
    server.start()

    async with client(server) as api:
        assert (await ended(api, path))["status"] == "success"
    server.kill()
    assert took < 50


async def test_a_run_ends_in_time(tmp_path: Path, model: ScriptedModel, gate: threading.Event) -> None:
    model.on("go", text("x " * 200).held(gate, after=10))
    with running_gateway(tmp_path, model.base_url, runs={"timeout_seconds": 0.5}) as gateway:
        async with gateway.client() as api:
            run = await ended(api, await start(api, "go"))

    assert (run["status"], run["stop_reason"]) == ("timeout", "RunTimeout")
    assert "runs.timeout_seconds" in run["error"]
