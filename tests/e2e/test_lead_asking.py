"""Questions that nobody answers: the run goes on by itself, once, whoever looks and whenever it starts."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from support.gateway import Gateway, GatewayProcess, running_gateway
from support.model_server import Reply, ScriptedModel, call, calls, text
from support.shared import fresh_model, shared_gateway
from support.waiting import until

HOST = {"use": "local", "allow_host_bash": True}
SOON = {"ask_timeout_seconds": 1}


gateway = shared_gateway(sandbox=HOST, guardrails=SOON)
model = fresh_model


def bash(command: str = "touch ran") -> Reply:
    return call("bash", description="Step", command=command)


async def say(api: httpx.AsyncClient, thread: str, **body: Any) -> dict[str, Any]:
    await api.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
    asked = {"input": {"messages": [{"role": "user", "content": "go"}]}}
    answer = await api.post(f"/threads/{thread}/runs/wait", json=body or asked)
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()
    return values


async def until_idle(api: httpx.AsyncClient, thread: str, runs: int) -> list[dict[str, Any]]:
    """Return the messages once so many runs have ended."""

    async def have_ended() -> bool:
        found = (await api.get(f"/threads/{thread}/runs")).json()
        return len(found) >= runs and all(run["status"] not in ("pending", "running") for run in found)

    await until(have_ended)
    messages: list[dict[str, Any]] = (await api.get(f"/threads/{thread}/state")).json()["values"]["messages"]
    return messages


def results(messages: list[dict[str, Any]]) -> list[str]:
    return [str(message["content"]) for message in messages if message["type"] == "tool"]


async def test_an_unanswered_question_is_rejected_and_the_run_goes_on(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway, thread: str
) -> None:
    model.will_say(bash(), text("Then I leave it."))

    asked = await say(api, thread)
    messages = await until_idle(api, thread, runs=2)

    assert "__interrupt__" in asked
    (result,) = results(messages)
    assert "nobody answered within 1 seconds" in result
    assert messages[-1]["content"] == "Then I leave it."
    assert "nobody answered within 1 seconds" in str(model.requests[1].messages[-1]["content"])
    assert (await api.get(f"/threads/{thread}")).json()["status"] == "idle"
    assert not list(gateway.home.rglob("ran"))


def looking_later(gateway: Gateway) -> Any:
    """Return a second look at the questions of a gateway, from a time when all of them have run out."""
    deerflow = gateway.deerflow
    assert deerflow is not None
    asks = deerflow.question_timeouts
    return type(asks)(
        storage=deerflow.storage,
        states=deerflow.state,
        start=deerflow.start_run,
        settings=lambda: deerflow.settings.guardrails,
        clock=lambda: asks._clock() + timedelta(days=2),
    )


async def in_house(gateway: Gateway, work: Coroutine[Any, Any, Any]) -> Any:
    """Do something on the gateway's own loop."""
    assert gateway.loop is not None
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, gateway.loop))


async def test_an_answer_in_time_counts_and_nothing_is_answered_twice(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.will_say(bash("echo fine"), text("Done."))
    with running_gateway(tmp_path, model.base_url, sandbox=HOST) as patient:
        async with patient.client() as api:
            await say(api, "t1")

            ended = await say(api, "t1", command={"resume": {"decisions": [{"type": "approve"}]}})
            answered = [await in_house(patient, looking_later(patient).reject_expired()) for _ in range(2)]
            runs = (await api.get("/threads/t1/runs")).json()

    assert results(ended["messages"]) == ["fine\n"]
    assert answered == [0, 0]
    assert len(runs) == 2


async def test_several_questions_of_one_answer_run_out_together(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(calls(bash("echo a"), bash("echo b")), text("Neither."))

    await say(api, thread)
    messages = await until_idle(api, thread, runs=2)

    assert len(results(messages)) == 2
    assert all("nobody answered" in result for result in results(messages))
    assert messages[-1]["content"] == "Neither."


async def test_a_sub_agents_question_runs_out_too(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    task = call("task", description="part", prompt="do the part", subagent_type="general-purpose")
    model.on("do the part", bash("echo x"), text("Could not, nobody answered."))
    model.will_say(task, text("The part is open."))

    body = {"input": {"messages": [{"role": "user", "content": "go"}]}, "context": {"subagent_enabled": True}}
    asked = await say(api, thread, **body)
    messages = await until_idle(api, thread, runs=2)

    assert "__interrupt__" in asked
    assert "Could not, nobody answered." in results(messages)[-1]
    assert messages[-1]["content"] == "The part is open."


async def test_many_servers_answer_a_question_once(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway, thread: str
) -> None:
    model.will_say(bash(), text("Left."), bash(), text("Left again."))
    await say(api, thread)

    async def look() -> None:
        await asyncio.gather(*(looking_later(gateway).reject_expired() for _ in range(5)))

    await in_house(gateway, look())
    messages = await until_idle(api, thread, runs=2)

    assert messages[-1]["content"] == "Left."
    assert len((await api.get(f"/threads/{thread}/runs")).json()) == 2


async def test_a_question_runs_out_while_no_server_is_there(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(bash(), text("Then I leave it."))
    gateway = GatewayProcess(tmp_path, model.base_url, sandbox=HOST, guardrails=SOON).start()
    async with gateway.client() as api:
        await say(api, "t1")
        gateway.kill()

        gateway.start()
        try:
            messages = await until_idle(api, "t1", runs=2)
        finally:
            gateway.stop()

    assert "nobody answered within 1 seconds" in results(messages)[0]
    assert messages[-1]["content"] == "Then I leave it."
