"""A call that waits is a question for clients that know no interrupts, such as DeerFlow's own frontend."""

import threading
from typing import Any

import httpx
import pytest
from support.gateway import parse_sse
from support.model_server import ScriptedModel, call, calls, text
from support.shared import fresh_model, shared_gateway

gateway = shared_gateway(
    sandbox={"use": "local", "allow_host_bash": True},
    guardrails={
        "rules": [
            {"tool": "bash", "pattern": "may-i", "action": "ask"},
            {"tool": "bash", "action": "allow"},
        ]
    },
)
model = fresh_model


def bash(command: str) -> Any:
    return call("bash", description="Step", command=command)


async def send(api: httpx.AsyncClient, thread: str, words: str, **kwargs: Any) -> dict[str, Any]:
    """Say something as DeerFlow's frontend does, and return the last values of the stream."""
    message = {"type": "human", "content": [{"type": "text", "text": words}], "additional_kwargs": kwargs}
    body = {
        "assistant_id": "lead_agent",
        "input": {"messages": [message]},
        "context": {"thinking_enabled": False, "is_plan_mode": False, "subagent_enabled": False},
        "stream_mode": ["messages-tuple", "values", "updates", "custom"],
    }
    await api.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
    response = await api.post(f"/threads/{thread}/runs/stream", json=body)
    assert response.status_code == 200, response.text
    values: dict[str, Any] = [data for kind, data, _ in parse_sse(response.text) if kind == "values"][-1]
    return values


async def answer(api: httpx.AsyncClient, thread: str, card: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Answer a card as its buttons do."""
    request = card["artifact"]["human_input"]
    response = {
        "version": 1,
        "kind": "human_input_response",
        "source": request["source"],
        "request_id": request["request_id"],
        **given,
    }
    return await send(api, thread, str(given["value"]), hide_from_ui=True, human_input_response=response)


def card_in(values: dict[str, Any]) -> dict[str, Any]:
    card: dict[str, Any] = values["messages"][-1]
    assert (card["type"], card["name"]) == ("tool", "ask_clarification")
    return card


def results(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for message in values["messages"] if message["type"] == "tool"]


async def test_a_call_that_waits_is_a_question_whose_choice_counts(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash("echo may-i \u202e ``` x"), text("Done."))

    card = card_in(await send(api, "c1", "Work."))
    (newest,) = (await api.post("/threads/c1/history", json={"limit": 1})).json()
    state = (await api.get("/threads/c1/state")).json()
    page = (await api.get("/threads/c1/messages/page")).json()["data"]
    request = card["artifact"]["human_input"]
    ended = await answer(api, "c1", card, response_kind="option", option_id="approve", value="Run it")
    late = await api.post(
        "/threads/c1/runs/wait", json={"command": {"resume": {"decisions": [{"type": "approve"}]}}}
    )

    assert newest["values"]["messages"][-1]["id"] == state["values"]["messages"][-1]["id"] == card["id"]
    assert page[-1]["content"]["id"] == card["id"]
    assert (request["kind"], request["input_mode"]) == ("human_input_request", "choice_with_other")
    assert [option["id"] for option in request["options"]] == [
        "approve",
        "approve-thread",
        "approve-always",
        "reject",
    ]
    assert "rule 1 of guardrails.rules" in request["context"]
    assert "````\ndescription: Step\ncommand: echo may-i \\u202e ``` x\n````" in request["question"]
    assert [result["name"] for result in results(ended)] == ["bash"]
    assert ended["messages"][-1]["content"] == "Done."
    assert late.status_code == 409
    assert "ask_clarification" not in [message.get("name") for message in model.requests[-1].messages]


@pytest.mark.parametrize(
    ("said", "given", "decision", "reason"),
    [
        (
            "Work.",
            {"response_kind": "option", "option_id": "reject", "value": "Refuse"},
            "reject",
            "no reason",
        ),
        ("Work.", {"response_kind": "text", "value": "use ls instead"}, "reject", "use ls instead"),
        ("开始工作吧。", {"response_kind": "text", "value": "执行"}, "approve", ""),
    ],
)
async def test_other_answers_to_the_question(
    api: httpx.AsyncClient, model: ScriptedModel, said: str, given: dict[str, Any], decision: str, reason: str
) -> None:
    thread = f"o-{len(str(given))}"
    model.will_say(bash("echo may-i"), text("Done."))

    card = card_in(await send(api, thread, said))
    ended = await answer(api, thread, card, **given)

    (result,) = results(ended)
    assert result["additional_kwargs"]["approval"]["decision"] == decision
    assert reason in result["content"]
    assert ("允许执行" in card["content"]) == (said != "Work.")


async def test_who_writes_the_words_of_a_choice_has_chosen(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash("echo may-i go"), text("Done."))

    await send(api, "w1", "Work.")
    ended = await send(api, "w1", "always allow in this thread")

    (result,) = results(ended)
    assert result["content"] == "may-i go\n"
    assert result["additional_kwargs"]["approval"]["remember"] == "thread"


async def test_a_new_message_declines_the_call_for_everyone_to_see(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("Work", calls(bash("echo free"), bash("echo may-i one"), bash("echo may-i two")), text("Done."))
    model.on("Never mind", text("As you like."))

    await send(api, "n1", "Work.")
    ended = await send(api, "n1", "Never mind that.")
    state = (await api.get("/threads/n1/state")).json()

    free, *declined = results(ended)
    assert free["content"] == "free\n"
    assert [each["status"] for each in declined] == ["error", "error"]
    for each in declined:
        assert each["additional_kwargs"]["approval"]["decision"] == "reject"
        assert "wrote a new message instead of deciding" in each["content"]
    assert ended["messages"][-1]["content"] == "As you like."
    assert [message["type"] for message in ended["messages"][-2:]] == ["human", "ai"]
    assert "wrote a new message instead of deciding" in str(model.requests[-1])
    assert state["interrupts"] == []


async def test_a_call_that_is_too_long_for_a_card_can_only_be_refused_there(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(bash(f"echo may-i {'x' * 20_000}"), text("Done."))

    card = card_in(await send(api, "l1", "Work."))

    assert [option["id"] for option in card["artifact"]["human_input"]["options"]] == ["reject"]
    assert "too long" in card["content"]


async def test_a_message_that_waited_in_line_declines_what_came_up_before_it(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("Work", bash("echo may-i").held(gate), text("Never said."))
    model.on("Then this", text("As you like."))
    await api.post("/threads", json={"thread_id": "q1"})
    asking, queued = (
        {"input": {"messages": [{"role": "user", "content": words}]}, "multitask_strategy": "enqueue"}
        for words in ("Work.", "Then this.")
    )

    await api.post("/threads/q1/runs", json=asking)
    waiting = (await api.post("/threads/q1/runs", json=queued)).json()
    gate.set()
    ended = (await api.get(f"/threads/q1/runs/{waiting['run_id']}/join")).json()

    (result,) = results(ended)
    assert "wrote a new message instead of deciding" in result["content"]
    assert [message["type"] for message in ended["messages"]] == ["human", "ai", "tool", "human", "ai"]


async def test_a_client_cannot_decline_by_itself(api: httpx.AsyncClient) -> None:
    await api.post("/threads", json={"thread_id": "f1"})
    body = {"input": {"messages": [{"role": "user", "content": "Hi"}]}, "command": {"declined": []}}

    refused = await api.post("/threads/f1/runs/wait", json=body)

    assert refused.status_code == 400
    assert "command.declined is the server's own" in refused.text
