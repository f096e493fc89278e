"""Decompose, delegate, synthesise: whole runs over HTTP, seen from the client's side."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.gateway import Gateway, GatewayProcess, parse_sse, running_gateway
from support.model_server import Request, ScriptedModel, call, calls, text
from support.waiting import completed, until
from typer.testing import CliRunner

from deerflow.cli.commands import app

MODES = ["values", "messages-tuple", "updates", "custom"]
SHELL = {
    "sandbox": {"use": "local", "allow_host_bash": True},
    "guardrails": {"rules": [{"tool": "bash", "action": "allow"}]},
}
CLOUDS = ["AWS", "Azure", "GCP", "Alibaba", "Oracle"]


def task(subject: str, **more: Any) -> Any:
    return call("task", description=subject, prompt=f"Look into {subject}.", **more)


def ask(question: str, **context: Any) -> dict[str, Any]:
    return {
        "input": {"messages": [{"type": "human", "content": question}]},
        "stream_mode": MODES,
        "on_disconnect": "continue",
        "context": {"subagent_enabled": True, **context},
    }


async def stream(api: httpx.AsyncClient, question: str, **context: Any) -> list[tuple[str, Any]]:
    response = await api.post("/threads/t1/runs/stream", json=ask(question, **context))
    assert response.status_code == 200, response.text
    return [(kind, data) for kind, data, _ in parse_sse(response.text)]


def custom(events: list[tuple[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [data for kind, data in events if kind == "custom" and (not kinds or data["type"] in kinds)]


def assert_batches(events: list[tuple[str, Any]], plan: list[list[str]]) -> None:
    """See that each task ran once, and that a batch started when all before it had ended."""
    started, ended, names = {}, {}, {}
    for index, event in enumerate(custom(events, "task_started", "task_completed")):
        if event["type"] == "task_started":
            names[event["task_id"]] = event["description"]
            started[event["description"]] = index
        else:
            ended[names[event["task_id"]]] = index
    assert sorted(started) == sorted(ended) == sorted(name for batch in plan for name in batch)
    assert len(names) == len(started)
    for before, after in itertools.pairwise(plan):
        assert max(ended[name] for name in before) < min(started[name] for name in after)


def last_values(events: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = [data for kind, data in events if kind == "values"][-1]
    return values


def tool_results(request: Request) -> list[str]:
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


# Orchestration


async def test_five_platforms_go_in_two_batches_and_a_reply_with_five_calls_is_cut_to_three(
    api: httpx.AsyncClient, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    for cloud in CLOUDS:
        model.on(f"Look into {cloud}.", text(f"{cloud} costs {len(cloud)}."))
    model.will_say(
        text("Five platforms, in batches of three.") + calls(*map(task, CLOUDS)),
        calls(*map(task, CLOUDS[3:])),
        text("All five compared."),
    )

    with caplog.at_level(logging.WARNING):
        events = await stream(api, "Compare five cloud platforms.", max_concurrent_subagents=3)

    assert "2 task calls dropped, one reply may start 3" in caplog.text
    assert_batches(events, [CLOUDS[:3], CLOUDS[3:]])
    asked_for = [
        [call["args"]["description"] for call in message["tool_calls"]]
        for message in last_values(events)["messages"]
        if message["type"] == "ai"
    ]
    assert asked_for == [CLOUDS[:3], CLOUDS[3:], []]
    synthesis = model.requests[-1]
    assert all(
        f"{cloud} costs" in result for cloud, result in zip(CLOUDS, tool_results(synthesis), strict=True)
    )
    assert last_values(events)["messages"][-1]["content"] == "All five compared."
    assert events[-1] == ("end", None)
    assert 'subagent_system limit="3"' in synthesis.system


async def test_a_task_beyond_the_slots_waits_in_the_queue(tmp_path: Path, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.on("Look into AWS.", text("AWS found.").held(gate))
    model.on("Look into", text("Found."))
    model.will_say(calls(task("AWS"), task("GCP")), text("Both compared."))
    with running_gateway(tmp_path, model.base_url, subagents={"max_running": 1}) as gateway:
        async with gateway.client() as api:
            run = asyncio.create_task(stream(api, "Compare two platforms."))
            await asyncio.to_thread(model.wait_for, lambda model: len(model.requests) == 2)
            await asyncio.sleep(0.2)  # time enough to ask for one that does not wait
            asked = [request.asked for request in model.requests]
            gate.set()
            events = await run

    assert asked == ["Compare two platforms.", "Look into AWS."]
    told = [(event["type"], event["description"]) for event in custom(events, "task_started")]
    assert told == [("task_started", "AWS"), ("task_started", "GCP")]
    assert len(custom(events, "task_completed")) == 2
    assert last_values(events)["messages"][-1]["content"] == "Both compared."


async def test_ten_papers_go_in_four_batches(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    papers = [f"paper {number}" for number in range(10)]
    for paper in papers:
        model.on(f"Look into {paper}.", text(f"{paper} says so."))
    plan = [papers[start : start + 3] for start in range(0, 10, 3)]
    model.will_say(*(calls(*map(task, batch)) for batch in plan), text("Ten papers read."))

    events = await stream(api, "Review ten papers.")

    assert_batches(events, plan)
    kinds_of_first = [
        event["type"] for event in custom(events) if event["task_id"] == custom(events)[0]["task_id"]
    ]
    assert kinds_of_first == ["task_started", "task_running", "task_completed"]
    assert len(tool_results(model.requests[-1])) == 10
    assert last_values(events)["messages"][-1]["content"] == "Ten papers read."


async def test_calls_beyond_the_limit_wait_where_the_settings_say_so(
    tmp_path: Path, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("Look into", lambda request: text("found", first=0.05).held(gate))
    model.will_say(calls(*map(task, CLOUDS)), text("Done."))

    with running_gateway(tmp_path, model.base_url, subagents={"overflow": "queue"}) as gateway:
        async with gateway.client() as api:
            streaming = asyncio.create_task(stream(api, "Compare.", max_concurrent_subagents=2))
            await model.until(lambda m: m.in_flight == 2)
            gate.set()
            events = await streaming

    assert len(custom(events, "task_completed")) == 5
    assert model.most_in_flight == 2
    assert "wait until one of the first has ended" in model.requests[0].system


# Limits


@pytest.fixture
def narrow(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    reader = {"description": "Reads.", "system_prompt": "You only read.", "tools": ["ls"], "max_turns": 3}
    with running_gateway(
        tmp_path, model.base_url, subagents={"custom_agents": {"reader": reader}}
    ) as gateway:
        yield gateway


async def test_after_a_time_out_the_lead_gets_the_findings(
    tmp_path: Path, model: ScriptedModel, gate: threading.Event
) -> None:
    look = call("ls", path="/mnt/user-data/workspace")
    model.on("Look into it.", text("The first file says A.") + look, text("and B").held(gate))

    for seconds in (1, 8, 40):  # longer where the machine was too slow for the first step
        model.requests.clear()
        model.will_say(task("it"), text("Partly answered."))
        limits = {"agents": {"general-purpose": {"timeout_seconds": seconds}}}
        with running_gateway(tmp_path / str(seconds), model.base_url, subagents=limits) as gateway:
            async with gateway.client() as api:
                events = await stream(api, "Find out.")
        if any(request.asked == "Look into it." and request.step == 1 for request in model.requests):
            break

    [result] = tool_results(model.requests[-1])
    assert "Task timed out" in result
    assert "The first file says A." in result
    assert [event["type"] for event in custom(events)][-1] == "task_timed_out"
    assert last_values(events)["messages"][-1]["content"] == "Partly answered."


async def test_a_forbidden_tool_is_refused_and_a_loop_stops_at_its_turn_limit(
    narrow: Gateway, model: ScriptedModel
) -> None:
    forbidden = call("write_file", description="x", path="/mnt/user-data/outputs/x.txt", content="x")
    model.on("Look into it.", text("Trying.") + forbidden)
    model.will_say(task("it", subagent_type="reader"), text("It could not."))

    async with narrow.client() as api:
        events = await stream(api, "Find out.")

    messages = [event["message"] for event in custom(events, "task_running")]
    refusals = [message for message in messages if message["type"] == "tool"]
    assert {(each["name"], each["status"]) for each in refusals} == {("write_file", "error")}
    assert "write_file is not a valid tool" in refusals[0]["content"]
    assert len([request for request in model.requests if "Look into it." in request.asked]) == 3
    [result] = [m for m in last_values(events)["messages"] if m["type"] == "tool"]
    assert result["additional_kwargs"]["subagent_stop_reason"] == "turn_capped"
    assert not (narrow.home / "outputs/x.txt").exists()


# Stopping and surviving


async def test_cancelling_a_run_ends_twenty_sleeping_sub_agents_in_under_a_second(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.on("Look into", call("bash", description="x", command="sleep 600"))
    model.on("Go.", calls(*(task(f"part {number}") for number in range(20))))
    sections = {**SHELL, "subagents": {"concurrency_range": [1, 20]}}
    seconds = []
    with running_gateway(tmp_path, model.base_url, **sections) as gateway:
        async with gateway.client() as api:
            for thread in ("t1", "t2", "t3", "t4", "t5"):  # the best: other jobs share this machine
                seconds.append(await seconds_to_cancel(api, f"/threads/{thread}/runs"))
                if seconds[-1] < 1:
                    break

    assert min(seconds) < 1, seconds


async def seconds_to_cancel(api: httpx.AsyncClient, runs: str) -> float:
    """Start twenty sleepers, cancel their run, see that nothing is left, and return how long it took."""
    run = (await api.post(runs, json=ask("Go.", max_concurrent_subagents=20))).json()
    path = f"{runs}/{run['run_id']}"
    await until(lambda: len(sleepers()) == 20)

    started = time.monotonic()
    answer = await api.post(f"{path}/cancel", params={"wait": "true"})
    seconds = time.monotonic() - started

    await until(lambda: sleepers() == [])
    assert answer.status_code == 204
    tasks = (await api.get(f"{path}/tasks")).json()
    assert [row["status"] for row in tasks] == ["cancelled"] * 20
    assert (await api.get(path)).json()["status"] == "interrupted"
    log = parse_sse((await api.get(f"{path}/stream")).text)
    kinds = [data["type"] for kind, data, _ in log if kind == "custom"]
    assert (kinds.count("task_started"), kinds.count("task_cancelled")) == (20, 20)
    assert log[-1][0] == "end"
    return seconds


def sleepers() -> list[int]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:2] == ["sleep", "600"] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_after_kill_9_four_finished_tasks_are_not_run_again_and_the_answer_uses_all_ten(
    tmp_path: Path, model: ScriptedModel
) -> None:
    gate = threading.Event()
    look = call("ls", description="x", path="/mnt/user-data/workspace")
    for number in range(10):
        found = text(f"found {number}.")
        answers = [found] if number < 4 else [look, found.held(gate)]
        model.on(f"Look into part {number}.", *answers)
    model.on(lambda request: len(tool_results(request)) == 10, text("All ten used."))
    model.will_say(calls(*(task(f"part {number}") for number in range(10))))
    server = GatewayProcess(tmp_path, model.base_url, subagents={"concurrency_range": [1, 10]}).start()
    try:
        async with server.client() as api:
            run = (await api.post("/threads/t1/runs", json=ask("Go.", max_concurrent_subagents=10))).json()
            path = f"/threads/t1/runs/{run['run_id']}"
            await model.until(lambda m: m.in_flight == 6 and len(m.requests) == 17)
            done = await completed(api, path, 4)
            server.kill()
        assert len(done) == 4
        gate.set()
        server.start()
        async with server.client() as api:
            values = (await api.get(f"{path}/join")).json()
            ended = (await api.get(path)).json()
            tasks = (await api.get(f"{path}/tasks")).json()
    finally:
        server.kill()

    assert (ended["status"], ended["attempt"]) == ("success", 2)
    assert values["messages"][-1]["content"] == "All ten used."
    asked = [sum(f"Look into part {n}." in request.asked for request in model.requests) for n in range(10)]
    assert asked == [1] * 4 + [3] * 6  # the first step, the one that was cut off, and that one again
    results = tool_results(model.requests[-1])
    assert all(f"found {number}." in result for number, result in enumerate(results))
    assert [row["status"] for row in tasks] == ["completed"] * 10


# One task of a run


@pytest.fixture
def shell_gateway(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    with running_gateway(tmp_path, model.base_url, **SHELL) as gateway:
        yield gateway


async def test_one_task_of_a_running_run_is_listed_and_cancelled_and_its_steps_stay_readable(
    shell_gateway: Gateway, model: ScriptedModel
) -> None:
    model.on("Look into slow.", text("I saw A.") + call("bash", description="x", command="sleep 600"))
    model.on("Look into quick.", text("quick result"))
    model.will_say(calls(task("slow"), task("quick")), text("Half of it."))
    async with shell_gateway.client() as api:
        run = (await api.post("/threads/t1/runs", json=ask("Go."))).json()
        path = f"/threads/t1/runs/{run['run_id']}"
        await until(lambda: len(sleepers()) == 1)
        await model.until(lambda m: len(m.requests) == 3)

        listed = await asyncio.to_thread(cli, shell_gateway, "tasks", "list")
        rows = {row["description"]: row for row in (await api.get(f"{path}/tasks")).json()}
        slow = rows["slow"]["task_id"]
        missing = await asyncio.to_thread(cli, shell_gateway, "tasks", "cancel", "nobody")
        stopped = await asyncio.to_thread(cli, shell_gateway, "tasks", "cancel", slow)
        assert stopped.exit_code == 0, stopped.output
        values = (await api.get(f"{path}/join")).json()

        assert (rows["slow"]["status"], rows["slow"]["subagent_type"]) == ("running", "general-purpose")
        assert listed.exit_code == 0
        assert slow in listed.output
        assert missing.exit_code == 1
        assert "task 'nobody' not found" in missing.output
        assert values["messages"][-1]["content"] == "Half of it."
        assert "Task cancelled by user." in tool_results(model.requests[-1])[0]
        later = (await api.get(f"{path}/tasks/{slow}")).json()
        assert (later["status"], later["error"]) == ("cancelled", "cancelled by user")
        assert [step["message"]["content"] for step in later["steps"]] == ["I saw A."]
        quick = (await api.get(f"{path}/tasks/{rows['quick']['task_id']}")).json()
        assert (quick["status"], quick["result"], quick["message_count"]) == ("completed", "quick result", 1)
        whole = {row["task_id"]: row for row in (await api.get(f"{path}/tasks?steps=true")).json()}
        assert (whole[slow]["steps"], "steps" in rows["slow"]) == (later["steps"], False)
        assert (await api.post(f"{path}/tasks/{slow}/cancel")).status_code == 409
        assert (await api.post(f"{path}/tasks/nobody/cancel")).status_code == 404
        assert (await api.get(f"{path}/tasks/nobody")).status_code == 404
        assert (await api.get("/threads/t1/runs/nothing/tasks")).status_code == 404
        deerflow = shell_gateway.deerflow
        assert deerflow is not None
        await until(lambda: deerflow.subagents.list() == [])  # the run has ended; the log knows


def cli(gateway: Gateway, *words: str) -> Any:
    return CliRunner().invoke(app, [*words, "--url", gateway.url])


def test_a_server_that_is_not_there_is_named_with_what_to_do() -> None:
    result = CliRunner().invoke(app, ["tasks", "list", "--url", "http://127.0.0.1:9"])

    assert result.exit_code == 1
    assert "no DeerFlow server answers at http://127.0.0.1:9" in result.output


async def test_a_background_task_lets_the_lead_go_on_and_its_turn_ends_with_the_result(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("Look into slow.", text("slow result").held(gate))
    model.will_say(task("slow", background=True), text("I am waiting."))
    model.will_say(text("With the slow result."))
    waiting = asyncio.create_task(stream(api, "Go."))
    await model.until(lambda m: len(m.requests) == 3 and m.in_flight == 1)
    gate.set()

    events = await waiting

    messages = [m for m in last_values(events)["messages"] if not m["additional_kwargs"].get("hide_from_ui")]
    assert [message["content"] for message in messages[2:]] == [
        messages[2]["content"],
        "I am waiting.",
        "With the slow result.",
    ]
    assert messages[2]["content"].startswith("Task started in the background")
    assert "slow result" in model.requests[-1].asked
    assert [event["type"] for event in custom(events)] == ["task_started", "task_running", "task_completed"]
