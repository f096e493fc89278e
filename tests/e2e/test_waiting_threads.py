"""Lists of threads say what waits in them, and what is done beside a question leaves it alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, call, text

HOST = {"use": "local", "allow_host_bash": True}
APPROVE = {"decisions": [{"type": "approve"}]}


@pytest.fixture
def gateway(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    with running_gateway(tmp_path, model.base_url, sandbox=HOST, guardrails={"enabled": True}) as running:
        yield running


async def say(api: httpx.AsyncClient, words: str) -> None:
    await api.post("/threads", json={"thread_id": "t1"})
    body = {"input": {"messages": [{"role": "user", "content": words}]}}
    assert (await api.post("/threads/t1/runs/wait", json=body)).status_code == 200


async def answer(api: httpx.AsyncClient) -> dict[str, Any]:
    response = await api.post("/threads/t1/runs/wait", json={"command": {"resume": APPROVE}})
    assert response.status_code == 200, response.text
    values: dict[str, Any] = response.json()
    return values


async def listed(api: httpx.AsyncClient, **wish: Any) -> dict[str, Any]:
    (thread,) = (await api.post("/threads/search", json={"limit": 1, **wish})).json()
    found: dict[str, Any] = thread
    return found


def asking(model: ScriptedModel, command: str = "echo yes") -> None:
    model.will_say(call("bash", description="Step", command=command), text("Done."))


def commands(thread: dict[str, Any]) -> list[str]:
    return [
        asked["value"]["action_requests"][0]["args"]["command"]
        for questions in thread["interrupts"].values()
        for asked in questions
    ]


async def test_a_list_shows_what_waits_until_it_is_answered(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    asking(model)

    await say(api, "go")
    waiting = await listed(api)
    whole = (await api.get("/threads/t1")).json()
    await answer(api)
    answered = await listed(api)

    assert (waiting["status"], commands(waiting)) == ("interrupted", ["echo yes"])
    assert waiting["interrupts"] == whole["interrupts"]
    assert (answered["status"], answered["interrupts"]) == ("idle", {})


async def test_a_list_has_titles_for_who_selects_them_and_whole_states_for_who_selects_values_or_nothing(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("Hello."))
    await say(api, "Tell me about deer")

    shown = await listed(api, select=["thread_id", "values.title"])
    named = await listed(api, select=["thread_id", "values"])
    plain = await listed(api)

    assert set(shown["values"]) == {"title"}
    assert named["values"]["title"] == shown["values"]["title"]
    assert named["values"]["messages"][-1]["content"] == "Hello."
    assert plain == (await api.get("/threads/t1")).json()


async def test_a_long_question_is_listed_without_what_it_is_about(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    asking(model, "echo " + "long " * 10_000)

    await say(api, "go")
    waiting = await listed(api, select=["interrupts"])
    whole = (await api.get("/threads/t1")).json()

    ((asked,),) = waiting["interrupts"].values()
    assert asked["value"] is None
    assert asked["id"] == next(iter(whole["interrupts"].values()))[0]["id"]
    assert len(commands(whole)[0]) > 50_000


async def test_a_question_survives_a_new_title_and_a_goal(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    asking(model)
    await say(api, "go")

    renamed = await api.post("/threads/t1/state", json={"values": {"title": "Ask first"}})
    goal = await api.put("/threads/t1/goal", json={"objective": "Be careful"})
    waiting = await listed(api)
    state = (await api.get("/threads/t1/state")).json()
    values = await answer(api)

    assert (renamed.status_code, goal.status_code) == (200, 200), (renamed.text, goal.text)
    assert (waiting["values"]["title"], commands(waiting)) == ("Ask first", ["echo yes"])
    assert state["values"]["title"] == "Ask first"
    assert len(state["interrupts"]) == 1
    assert [message["content"] for message in values["messages"] if message["type"] == "tool"] == ["yes\n"]
    assert values["title"] == "Ask first"
    assert values["goal"]["objective"] == "Be careful"


async def test_a_waiting_thread_is_not_compacted_and_says_why(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    asking(model)
    await say(api, "go")

    refused = await api.post("/threads/t1/compact", json={})
    values = await answer(api)

    assert refused.status_code == 409
    assert "waits for an answer" in refused.text
    assert values["messages"][-1]["content"] == "Done."


async def test_a_copy_waits_with_the_same_question(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    asking(model)
    await say(api, "go")

    copied = (await api.post("/threads/t1/copy")).json()
    found = await listed(api, ids=[copied["thread_id"]])

    assert (found["status"], commands(found)) == ("interrupted", ["echo yes"])


async def test_a_copy_of_a_thread_whose_answer_is_a_question_waits_too(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(call("ask_clarification", question="Which deer?", clarification_type="missing_info"))
    await say(api, "Tell me about them")

    copied = (await api.post("/threads/t1/copy")).json()
    found = await listed(api, ids=[copied["thread_id"]], select=["waits_for_answer"])

    assert copied["waits_for_answer"] is True
    assert found == {"waits_for_answer": True}


async def test_the_question_of_a_copy_is_answered_over_the_thread_protocol(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    asking(model)
    await say(api, "go")
    copied = (await api.post("/threads/t1/copy")).json()["thread_id"]
    ((asked,),) = (await listed(api, ids=[copied]))["interrupts"].values()

    params = {"interrupt_id": asked["id"], "response": APPROVE}
    body = {"id": 1, "method": "input.respond", "params": params}
    answer = (await api.post(f"/threads/{copied}/commands", json=body)).json()
    (run,) = (await api.get(f"/threads/{copied}/runs")).json()
    values = (await api.get(f"/threads/{copied}/runs/{run['run_id']}/join")).json()

    assert answer["type"] == "success", answer
    assert values["messages"][-1]["content"] == "Done."


async def test_a_thread_still_waits_when_a_later_run_is_taken_back(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    asking(model)
    await say(api, "go")

    body = {"input": {"messages": [{"role": "user", "content": "later"}]}, "after_seconds": 3600}
    run = (await api.post("/threads/t1/runs", json=body)).json()
    await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?wait=1")
    waiting = await listed(api)
    values = await answer(api)

    assert (waiting["status"], commands(waiting)) == ("interrupted", ["echo yes"])
    assert values["messages"][-1]["content"] == "Done."


async def test_a_thread_whose_answer_is_a_question_waits_until_somebody_speaks(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    question = call("ask_clarification", question="Which deer?", clarification_type="missing_info")
    model.will_say(question, text("All deer."))

    await say(api, "Tell me about them")
    asking = await listed(api, select=["status", "interrupts", "waits_for_answer"])
    await say(api, "All of them")
    answered = await listed(api, select=["waits_for_answer"])

    assert asking == {"status": "idle", "interrupts": {}, "waits_for_answer": True}
    assert answered == {"waits_for_answer": False}
