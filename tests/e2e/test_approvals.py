"""A person decides about tool calls: over HTTP, after a restart, and for sub-agents."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from support.gateway import Gateway, GatewayProcess, environment, parse_sse, running_gateway, write_config
from support.model_server import ScriptedModel, call, calls, text

from deerflow.app import DeerFlow
from deerflow.client import AsyncDeerFlowClient, RunFailedError
from deerflow.config import SettingsSource

HOST = {"use": "local", "allow_host_bash": True}


@pytest.fixture
def gateway(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    rules = [
        {"tool": "bash", "pattern": r"echo free \w+", "action": "allow"},
        {"tool": "bash", "pattern": r"shutdown", "action": "deny"},
    ]
    with running_gateway(tmp_path, model.base_url, sandbox=HOST, guardrails={"rules": rules}) as running:
        yield running


def bash(command: str) -> Any:
    return call("bash", description="Step", command=command)


async def say(api: httpx.AsyncClient, words: str, thread: str = "t1", **more: Any) -> dict[str, Any]:
    body = {"input": {"messages": [{"role": "user", "content": words}]}, **more}
    return await run(api, thread, body)


async def resume(api: httpx.AsyncClient, answer: Any, thread: str = "t1") -> dict[str, Any]:
    return await run(api, thread, {"command": {"resume": answer}})


async def run(api: httpx.AsyncClient, thread: str, body: dict[str, Any]) -> dict[str, Any]:
    await api.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
    response = await api.post(f"/threads/{thread}/runs/wait", json=body)
    assert response.status_code == 200, response.text
    values: dict[str, Any] = response.json()
    return values


def decision(kind: str, **more: Any) -> dict[str, Any]:
    return {"decisions": [{"type": kind, **more}]}


def question(values: dict[str, Any]) -> dict[str, Any]:
    (asked,) = values["__interrupt__"]
    payload: dict[str, Any] = asked["value"]
    return payload


def results(values: dict[str, Any]) -> list[str]:
    return [message["content"] for message in values["messages"] if message["type"] == "tool"]


async def test_an_approved_command_runs_and_only_then(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    model.will_say(bash(f"echo ran >> {proof}"), text("Done."))

    asked = await say(api, "go")
    thread = (await api.get("/threads/t1")).json()
    existed_before = proof.exists()
    state = (await api.get("/threads/t1/state")).json()
    ended = await resume(api, decision("approve", hash=question(asked)["hash"]))

    assert question(asked)["action_requests"][0]["args"]["command"] == f"echo ran >> {proof}"
    assert question(asked)["review_configs"] == [
        {"action_name": "bash", "allowed_decisions": ["approve", "edit", "reject"]}
    ]
    assert thread["status"] == "interrupted"
    assert state["interrupts"][0]["value"]["hash"] == question(asked)["hash"]
    assert existed_before is False
    assert proof.read_text() == "ran\n"
    assert ended["messages"][-1]["content"] == "Done."
    assert ended["messages"][-2]["additional_kwargs"]["approval"]["decision"] == "approve"
    assert "__interrupt__" not in ended


async def test_an_answer_with_a_key_may_be_sent_again(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    model.will_say(bash(f"echo ran >> {proof}"), text("Done."))
    await say(api, "go")
    answer = {"command": {"resume": decision("approve")}}

    first, again = [
        await api.post("/threads/t1/runs/wait", json=answer, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]

    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert first.headers["content-location"] == again.headers["content-location"]
    assert first.json() == again.json()
    assert proof.read_text() == "ran\n"


async def test_an_edited_command_runs_as_edited_and_the_model_is_told(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    model.will_say(bash("echo harm"), text("Fine."))
    await say(api, "go")

    ended = await resume(
        api, decision("edit", edited_action={"name": "bash", "args": {"command": "echo good"}})
    )

    (result,) = results(ended)
    assert "A person changed this call" in result
    assert result.endswith("good\n")
    assert "harm" not in result


async def test_a_rejected_call_is_told_with_its_reason_and_not_asked_about_again(
    api: httpx.AsyncClient, model: ScriptedModel, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    again = call("bash", description="Another label", command=f"touch {proof}")
    model.will_say(bash(f"touch {proof}"), again, again, text("I give up."))
    await say(api, "go")

    ended = await resume(api, decision("reject", message="not on my machine"))

    assert all("not on my machine" in result for result in results(ended))
    assert len(results(ended)) == 3
    assert ended["messages"][-1]["content"] == "I give up."
    assert not proof.exists()


async def test_a_new_word_of_the_user_makes_a_rejected_call_worth_asking_again(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash("echo x"), text("Stopped."), bash("echo x"), text("Done."))
    await say(api, "go")
    await resume(api, decision("reject"))

    asked = await say(api, "do it after all")
    ended = await resume(api, decision("approve"))

    assert question(asked)["action_requests"][0]["args"]["command"] == "echo x"
    assert results(ended)[-1] == "x\n"


async def test_an_answer_to_another_call_is_refused_and_the_question_still_waits(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash("echo a"), text("Done."))
    asked = await say(api, "go")

    response = await api.post(
        "/threads/t1/runs/wait", json={"command": {"resume": decision("approve", hash="0" * 64)}}
    )
    ended = await resume(api, decision("approve", hash=question(asked)["hash"]))
    twice = await api.post("/threads/t1/runs/wait", json={"command": {"resume": decision("approve")}})

    assert response.status_code == 409
    assert "another call" in response.text
    assert results(ended) == ["a\n"]
    assert twice.status_code == 409
    assert "waits for an answer" in twice.text


@pytest.mark.parametrize(
    "answer",
    ["yes", 7, [], {"decisions": []}, {"decisions": [{"type": "obey"}]}, {"decisions": [{"type": "edit"}]}],
)
async def test_an_answer_that_is_no_decision_runs_nothing_and_is_asked_again(
    api: httpx.AsyncClient, model: ScriptedModel, answer: Any
) -> None:
    model.will_say(bash("echo a"), text("Done."))
    await say(api, "go")

    asked = await resume(api, answer)
    ended = await resume(api, decision("approve"))

    assert "could not be used" in question(asked)["action_requests"][0]["description"]
    assert results(ended) == ["a\n"]


async def test_an_edit_cannot_bring_in_what_is_denied(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(bash("echo a"), text("Done."))
    await say(api, "go")

    asked = await resume(
        api, decision("edit", edited_action={"name": "bash", "args": {"command": "shutdown now"}})
    )

    assert "denied" in question(asked)["action_requests"][0]["description"]


async def test_rules_allow_and_deny_without_asking(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(
        calls(bash("echo free lunch"), bash("echo `shutdown -h now`")),
        bash("echo free lunch; id"),
    )

    asked = await say(api, "go")

    assert question(asked)["action_requests"][0]["args"]["command"] == "echo free lunch; id"
    allowed, denied = results(asked)
    assert allowed == "free lunch\n"
    assert "was not run: rule 2 of guardrails.rules does not allow it" in denied


async def test_what_is_allowed_for_good_is_listed_and_can_be_taken_back(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash("echo same"), text("One."), bash("echo same"), text("Two."), bash("echo same"))
    await say(api, "Work.")
    await resume(api, decision("approve", remember="always"))
    unasked = await say(api, "Again.", thread="t2")
    (allowed,) = (await api.get("/allowed-calls")).json()["allowed_calls"]
    missing = await api.delete("/allowed-calls/nothing")
    revoked = await api.delete(f"/allowed-calls/{allowed['id']}")
    asked = await say(api, "And again.", thread="t2")

    assert results(unasked) == ["same\n"]
    assert unasked["messages"][-2]["additional_kwargs"]["approval"]["remember"] == "always"
    assert (allowed["tool"], allowed["args"], allowed["scope"]) == (
        "bash",
        '{"command":"echo same"}',
        "always",
    )
    assert (missing.status_code, revoked.status_code) == (404, 204)
    assert question(asked)["action_requests"][0]["args"]["command"] == "echo same"
    assert (await api.get("/allowed-calls")).json()["allowed_calls"] == []


async def test_what_is_allowed_in_a_thread_goes_with_it(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(bash("echo same"), text("One."))
    await say(api, "Work.")
    again = await resume(api, decision("approve", remember="for a while"))
    await resume(api, decision("approve", remember="thread"))

    assert "remember is one of thread, always" in question(again)["problem"]
    (allowed,) = (await api.get("/allowed-calls")).json()["allowed_calls"]
    assert (allowed["thread_id"], allowed["thread_title"]) == ("t1", "Work.")
    await api.delete("/threads/t1")
    assert (await api.get("/allowed-calls")).json()["allowed_calls"] == []


async def test_two_questions_are_answered_by_id_or_in_order(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(calls(bash("echo a"), bash("echo b")), text("Done."))
    model.will_say(calls(bash("echo c"), bash("echo d")), text("Done."))

    first = await say(api, "go")
    ids = [asked["id"] for asked in first["__interrupt__"]]
    unclear = await api.post("/threads/t1/runs/wait", json={"command": {"resume": decision("approve")}})
    half = await resume(api, {ids[0]: decision("approve")})
    whole = await resume(api, {ids[1]: decision("reject", message="enough")})
    await say(api, "more")
    ordered = await resume(api, {"decisions": [{"type": "approve"}, {"type": "reject", "message": "no"}]})

    assert unclear.status_code == 409
    assert [asked["id"] for asked in half["__interrupt__"]] == [ids[1]]
    assert results(whole)[0] == "a\n"
    assert "enough" in results(whole)[1]
    assert results(ordered)[2] == "c\n"
    assert "no" in results(ordered)[3]


async def test_the_stream_shows_the_question_and_the_decision(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash("echo a"), text("Done."))
    await api.post("/threads", json={"thread_id": "t1"})
    modes = ["values", "updates", "custom"]
    body = {"input": {"messages": [{"role": "user", "content": "go"}]}, "stream_mode": modes}

    asked = parse_sse((await api.post("/threads/t1/runs/stream", json=body)).text)
    answer = {"command": {"resume": decision("approve")}, "stream_mode": modes}
    ended = parse_sse((await api.post("/threads/t1/runs/stream", json=answer)).text)

    updates = [
        data["__interrupt__"] for kind, data, _ in asked if kind == "updates" and "__interrupt__" in data
    ]
    values = [
        data["__interrupt__"] for kind, data, _ in asked if kind == "values" and "__interrupt__" in data
    ]
    assert updates[0][0]["value"]["action_requests"][0]["name"] == "bash"
    assert values[-1][0]["id"] == updates[0][0]["id"]
    (decided,) = [data for kind, data, _ in ended if kind == "custom" and data.get("type") == "approval"]
    assert (decided["decision"], decided["name"], decided["user_id"]) == ("approve", "bash", "default")


async def test_the_public_sdk_answers_as_it_answers_langchains_own_middleware(
    gateway: Gateway, model: ScriptedModel
) -> None:
    model.will_say(bash("echo a"), text("Done."))
    async with get_client(url=f"{gateway.url}/api/langgraph", api_key=None) as client:
        thread = (await client.threads.create())["thread_id"]
        words: Any = {"messages": [{"role": "user", "content": "go"}]}

        asked: Any = await client.runs.wait(thread, "lead_agent", input=words)
        waiting = await client.threads.search(status="interrupted")
        ended: Any = await client.runs.wait(thread, "lead_agent", command={"resume": decision("approve")})

    assert question(asked)["action_requests"][0]["name"] == "bash"
    assert [each["thread_id"] for each in waiting] == [thread]
    assert results(ended) == ["a\n"]


async def test_an_embedded_chat_says_that_it_waits_and_goes_on_with_the_answer(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.will_say(bash("echo a"), text("Done."), bash("echo b"), text("Not done."))
    source = SettingsSource(
        write_config(tmp_path, model.base_url, sandbox=HOST), env=environment(tmp_path), cwd=tmp_path
    )
    async with DeerFlow.open(source) as deerflow:
        client = AsyncDeerFlowClient(deerflow)

        with pytest.raises(RunFailedError, match="waits for a person's answer"):
            await client.chat("go", thread_id="t1")
        asked = (await client.state("t1"))["interrupts"]
        answers = {asked[0]["id"]: decision("approve")}
        events = [event async for event in client.stream("", thread_id="t1", resume=answers)]
        alone = await client.chat("go on", thread_id="t1", is_interactive=False)

    assert events[-1].event == "end"
    assert alone == "Not done."
    assert "nobody can answer in this run" in str(model.requests[-1])


async def test_a_late_answer_is_a_rejection_and_says_so(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(bash("echo a"), text("Done."))
    limits = {"ask_timeout_seconds": 0.01}
    with running_gateway(tmp_path, model.base_url, sandbox=HOST, guardrails=limits) as gateway:
        assert gateway.deerflow is not None
        assert gateway.loop is not None
        stopping = asyncio.run_coroutine_threadsafe(gateway.deerflow.question_timeouts.aclose(), gateway.loop)
        await asyncio.wrap_future(stopping)  # else the server would be quicker with its own rejection
        async with gateway.client() as api:
            await say(api, "go")
            await asyncio.sleep(0.02)  # its time is over, however quick the machine is
            ended = await resume(api, decision("approve"))

    assert "nobody answered within 0.01 seconds" in results(ended)[0]


async def test_a_sub_agents_question_reaches_the_same_place(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    task = call("task", description="Look", prompt="inner work", subagent_type="general-purpose")
    model.on("inner work", bash("echo inside"), text("The sub-agent saw it."))
    model.on("outer", task, text("All done."))

    asked = await say(api, "outer", context={"subagent_enabled": True})
    ended = await run(
        api,
        "t1",
        {
            "command": {"resume": decision("approve", hash=question(asked)["hash"])},
            "context": {"subagent_enabled": True},
        },
    )

    assert question(asked)["action_requests"][0]["args"]["command"] == "echo inside"
    assert question(asked)["task_id"]
    assert (question(asked)["subagent"], question(asked)["reason_code"]) == ("Look", "host")
    words = question(asked)["action_requests"][0]["description"]
    assert words.startswith("The sub-agent “Look” asks: May `bash` run? You are asked because the command")
    assert "The sub-agent saw it." in results(ended)[0]
    assert ended["messages"][-1]["content"] == "All done."


def test_a_question_outlives_the_server(tmp_path: Path, model: ScriptedModel) -> None:
    proof = tmp_path / "proof"
    model.will_say(bash(f"echo ran >> {proof}"), text("Done."))
    server = GatewayProcess(tmp_path / "home", model.base_url, sandbox=HOST).start()
    try:
        with httpx.Client(base_url=server.api, timeout=120, trust_env=False, verify=False) as api:
            api.post("/threads", json={"thread_id": "t1"})
            body = {"input": {"messages": [{"role": "user", "content": "go"}]}}
            asked = api.post("/threads/t1/runs/wait", json=body).json()
            server.kill()
            server.start()
            waiting = api.get("/threads/t1/state").json()["interrupts"]
            answer = {waiting[0]["id"]: decision("approve", hash=question(asked)["hash"])}
            ended = api.post("/threads/t1/runs/wait", json={"command": {"resume": answer}}).json()
    finally:
        server.stop()

    assert [each["value"] for each in waiting] == [question(asked)]
    assert proof.read_text() == "ran\n"
    assert ended["messages"][-1]["content"] == "Done."
    assert "guardrail: approve of bash" in server.log


async def test_a_provider_of_the_older_settings_denies_by_name(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(call("ls", description="Look", path="/mnt/user-data/workspace"), text("Done."))
    provider = {
        "enabled": True,
        "provider": {
            "use": "deerflow.guardrails.builtin:AllowlistProvider",
            "config": {"denied_tools": ["ls"]},
        },
    }
    with running_gateway(tmp_path, model.base_url, guardrails=provider) as gateway:
        async with gateway.client() as api:
            ended = await say(api, "go")

    assert "ls is in denied_tools" in results(ended)[0]
