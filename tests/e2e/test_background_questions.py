"""A background task meets a rule that asks: the question reaches the person, over HTTP and over restarts."""

import asyncio
import os
import pty
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, GatewayProcess, parse_sse, running_gateway
from support.model_server import Reply, ScriptedModel, call, calls, text
from support.terminal import Terminal, start_job
from support.waiting import eventually, until, until_idle

HOST = {"use": "local", "allow_host_bash": True}


@pytest.fixture
def gateway(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    with running_gateway(tmp_path, model.base_url, sandbox=HOST) as running:
        yield running


def bash(command: str) -> Reply:
    return call("bash", description="Step", command=command)


def background(name: str) -> Reply:
    return call("task", description=name, prompt=name, background=True)


def script(model: ScriptedModel, proof: Path) -> None:
    """Let a background task run one command that a person must allow, and say what came of it."""
    model.on(
        "inner work", bash(f"echo ran >> {proof}; echo seen"), lambda r: text(f"It was: {r.last_message}")
    )
    model.will_say(background("inner work"), text("It works in the background."), text("All done."))


BODY = {
    "input": {"messages": [{"role": "user", "content": "go"}]},
    "context": {"subagent_enabled": True},
    "stream_mode": ["values", "custom"],
}

APPROVAL = {"command": {"resume": {"decisions": [{"type": "approve"}]}}}


async def run(api: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    await api.post("/threads", json={"thread_id": "t1", "if_exists": "do_nothing"})
    response = await api.post("/threads/t1/runs/wait", json=body)
    assert response.status_code == 200, response.text
    values: dict[str, Any] = response.json()
    return values


async def answer(api: httpx.AsyncClient, kind: str, **more: Any) -> dict[str, Any]:
    """Answer as the documents say, with nothing else in the request."""
    return await run(api, {"command": {"resume": {"decisions": [{"type": kind, **more}]}}})


def questions(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["value"] for each in values.get("__interrupt__", ())]


def last(values: dict[str, Any]) -> str:
    return str(values["messages"][-1]["content"])


def told(values: dict[str, Any]) -> str:
    """Return what the lead agent heard of the task."""
    return next(
        str(each["content"]) for each in reversed(values["messages"]) if each.get("name") == "task_question"
    )


async def test_an_approval_lets_the_task_go_on(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    script(model, proof)

    asked = await run(api, BODY)
    thread = (await api.get("/threads/t1")).json()
    existed_before = proof.exists()
    ended = await answer(api, "approve", hash=questions(asked)[0]["hash"])

    [question] = questions(asked)
    assert question["action_requests"][0]["args"]["command"].startswith("echo ran")
    assert question["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject"]
    assert question["task_id"]
    assert thread["status"] == "interrupted"
    assert existed_before is False
    assert proof.read_text() == "ran\n"
    assert "seen" in told(ended)
    assert last(ended) == "All done."
    assert questions(ended) == []


async def test_an_edited_call_runs_as_edited(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    script(model, tmp_path / "proof")
    await run(api, BODY)

    edited = {"name": "bash", "args": {"description": "Step", "command": "echo instead"}}
    ended = await answer(api, "edit", edited_action=edited)

    assert "instead" in told(ended)
    assert not (tmp_path / "proof").exists()


async def test_a_rejection_is_told_to_the_task_with_its_reason(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    script(model, tmp_path / "proof")
    await run(api, BODY)

    ended = await answer(api, "reject", message="not on my machine")

    assert "not on my machine" in told(ended)
    assert not (tmp_path / "proof").exists()
    assert last(ended) == "All done."


async def test_two_questions_of_one_task_and_one_of_another_are_told_apart(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("one", calls(bash("echo a"), bash("echo b")), lambda r: text(f"{results(r.messages)}"))
    model.on("two", bash("echo c"), lambda r: text(f"{results(r.messages)}"))
    model.will_say(calls(background("one"), background("two")), text("Started."), text("All done."))
    await api.post("/threads", json={"thread_id": "t1"})

    values, commands = await run(api, BODY), []
    for _ in range(3):
        asked = values["__interrupt__"]
        commands.append([each["value"]["action_requests"][0]["args"]["command"] for each in asked])
        refused = {"decisions": [{"type": "reject", "message": f"no {commands[-1][0]}"}]}
        values = await run(api, {"command": {"resume": {asked[0]["id"]: refused}}})

    assert commands == [["echo a", "echo c"], ["echo b", "echo c"], ["echo c"]]
    found = [each["content"] for each in values["messages"] if each.get("name") == "task_question"]
    assert [["no echo a" in each, "no echo b" in each, "no echo c" in each] for each in found] == [
        [True, True, False],
        [False, False, True],
    ]
    assert last(values) == "All done."


def results(messages: list[dict[str, Any]]) -> list[str]:
    return [str(each["content"]) for each in messages if each["role"] == "tool"]


async def test_the_stream_shows_the_question_between_two_steps_of_the_lead(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    model.on("inner work", bash("echo seen"), text("It ran."))
    step = call("ls", description="Look", path="/mnt/user-data/workspace")
    asked_inside = threading.Event()
    model.will_say(background("inner work"), step.held(asked_inside), text("Still here."), text("All done."))
    await api.post("/threads", json={"thread_id": "t1"})
    waiting = asyncio.create_task(api.post("/threads/t1/runs/stream", json=BODY))
    await model.until(lambda m: len(m.requests) == 3 and m.in_flight == 1)
    await until_asked(api)
    asked_inside.set()

    events = parse_sse((await waiting).text)
    ended = await answer(api, "approve")

    shown = [
        data["__interrupt__"] for kind, data, _ in events if kind == "values" and "__interrupt__" in data
    ]
    assert shown[-1][0]["value"]["action_requests"][0]["args"]["command"] == "echo seen"
    assert [data["type"] for kind, data, _ in events if kind == "custom"] == [
        "task_started",
        "task_running",
        "task_asking",
    ]
    assert last(ended) == "All done."


async def until_asked(api: httpx.AsyncClient) -> tuple[str, str]:
    """Return the path of the latest run's tasks and the one that waits for a person, once one does."""

    async def look() -> tuple[str, str] | None:
        for run in (await api.get("/threads/t1/runs?limit=1")).json():
            path = f"/threads/t1/runs/{run['run_id']}/tasks"
            for task in (await api.get(path)).json():
                if task["is_asking"]:
                    return path, task["task_id"]
        return None

    path, task_id = await until(look)
    return path, task_id


async def test_a_task_that_asks_is_stopped_over_http_while_its_run_works_and_not_after(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    hold = threading.Event()
    model.on("inner work", text("I saw A.") + bash("echo a"))
    model.on("other work", text("It is found.").held(hold))
    model.will_say(
        calls(background("inner work"), background("other work")), text("Started."), text("Half done.")
    )
    model.will_say(background("inner work"), text("Started."))
    await api.post("/threads", json={"thread_id": "t1"})
    working = asyncio.create_task(run(api, BODY))
    path, asking = await until_asked(api)

    stopped = await api.post(f"{path}/{asking}/cancel")
    hold.set()
    ended = await working
    await run(api, BODY)
    path, waiting = await until_asked(api)
    late = await api.post(f"{path}/{waiting}/cancel")

    assert stopped.status_code == 202
    assert questions(ended) == []
    assert "I saw A." in str(ended["messages"])
    assert last(ended) == "Half done."
    assert late.status_code == 409
    assert "waits for an answer to what it asked; reject that instead" in late.text


async def test_a_new_message_instead_of_an_answer_leaves_the_call_undone(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    script(model, tmp_path / "proof")
    await run(api, BODY)

    ended = await run(api, BODY)
    late = await api.post("/threads/t1/runs/wait", json=APPROVAL)

    assert last(ended) == "All done."
    assert questions(ended) == []
    assert late.status_code == 409
    assert not (tmp_path / "proof").exists()


async def test_a_question_that_nobody_answers_is_rejected_in_time(
    tmp_path: Path, model: ScriptedModel
) -> None:
    script(model, tmp_path / "proof")
    limits = {"ask_timeout_seconds": 1}
    with running_gateway(tmp_path, model.base_url, sandbox=HOST, guardrails=limits) as gateway:
        async with gateway.client() as api:
            asked = await run(api, BODY)
            await until_idle(api, "t1")
            ended = (await api.get("/threads/t1/state")).json()["values"]

    assert len(questions(asked)) == 1
    assert "nobody answered within 1 seconds" in told(ended)
    assert last(ended) == "All done."
    assert not (tmp_path / "proof").exists()


async def test_what_a_background_task_asks_is_asked_at_the_terminal(
    tmp_path: Path, model: ScriptedModel
) -> None:
    proof = tmp_path / "proof"
    model.on("inner", call("bash", description="Step", command=f"touch {proof}"), text("It ran."))
    model.will_say(call("task", prompt="inner", background=True), text("It works."), text("Finished."))
    master, slave = pty.openpty()
    job = Terminal(await start_job(tmp_path, model, slave, sandbox=HOST), master)

    await job.sees("touch .*proof")
    await job.sees("change it: ")
    existed_before = proof.exists()
    job.types("y")
    answer = await job.ends()

    os.close(master)
    os.close(slave)
    assert (existed_before, proof.exists()) == (False, True)
    assert answer.endswith("Finished.\n")


def test_a_question_and_its_answer_outlive_the_server(tmp_path: Path, model: ScriptedModel) -> None:
    proof, hold = tmp_path / "proof", threading.Event()
    model.on("inner work", bash(f"echo ran >> {proof}"), text("It ran.").held(hold))
    model.will_say(background("inner work"), text("It works."), text("All done."))
    server = GatewayProcess(tmp_path / "home", model.base_url, sandbox=HOST).start()
    try:
        with httpx.Client(base_url=server.api, timeout=120, trust_env=False, verify=False) as api:
            api.post("/threads", json={"thread_id": "t1"})
            asked = api.post("/threads/t1/runs/wait", json=BODY).json()
            server.kill()
            server.start()
            waiting = api.get("/threads/t1/state").json()["interrupts"]
            answer = {
                "command": {"resume": {"decisions": [{"type": "approve"}]}},
                "on_disconnect": "continue",
            }
            api.post("/threads/t1/runs", json=answer)
            model.wait_for(lambda m: len(m.requests) == 4 and m.in_flight == 1, timeout=60)
            server.kill()  # the task goes on with the answer, and is not done
            hold.set()
            server.start()
            eventually(lambda: api.get("/threads/t1").json()["status"] == "idle")
            messages = api.get("/threads/t1/state").json()["values"]["messages"]
    finally:
        server.stop()

    assert [each["value"] for each in waiting] == questions(asked)
    assert proof.read_text() == "ran\n"
    assert "It ran." in told({"messages": messages})
    assert messages[-1]["content"] == "All done."


def test_a_server_that_dies_while_a_task_asks_asks_when_it_is_back(
    tmp_path: Path, model: ScriptedModel
) -> None:
    proof, hold = tmp_path / "proof", threading.Event()
    model.on("inner work", bash(f"echo ran >> {proof}"), text("It ran."))
    model.on("other work", text("Other found.").held(hold))
    # By what it was told, not by how often it was asked: what the crash left is asked for again.
    model.on(lambda request: "It ran." in str(request.messages), text("All done."))
    begin = calls(background("inner work"), background("other work"))
    model.on(lambda request: request.asked == "go", begin, text("Both work."))
    model.on(lambda request: True, text("Both work."))
    server = GatewayProcess(tmp_path / "home", model.base_url, sandbox=HOST).start()
    try:
        with httpx.Client(base_url=server.api, timeout=120, trust_env=False, verify=False) as api:
            api.post("/threads", json={"thread_id": "t1"})
            run = api.post("/threads/t1/runs", json={**BODY, "on_disconnect": "continue"}).json()
            path = f"/threads/t1/runs/{run['run_id']}/tasks"
            eventually(lambda: any(task["is_asking"] for task in api.get(path).json()))
            model.wait_for(lambda m: any(each.asked == "go" and each.step for each in m.requests))
            server.kill()
            hold.set()
            server.start()
            eventually(lambda: bool(api.get("/threads/t1/state").json()["interrupts"]))
            ended = api.post("/threads/t1/runs/wait", json=APPROVAL).json()
    finally:
        server.stop()

    assert proof.read_text() == "ran\n"
    assert "It ran." in told(ended)
    assert last(ended) == "All done."
