"""Goals of threads: set over HTTP, shown to the model, judged at the end of a turn, worked on unasked."""

import threading
from typing import Any

import httpx
import orjson
import pytest
from support.gateway import parse_sse
from support.model_server import Reply, ScriptedModel, call, text

OBJECTIVE = "note.txt lists three deer"
NOTE = "/mnt/user-data/workspace/note.txt"
JUDGE = "Judge whether a goal has been met"


def judged(satisfied: bool, blocker: str = "goal_not_met_yet", reason: str = "two deer are missing") -> Reply:
    found = {"satisfied": satisfied, "blocker": blocker, "reason": reason, "evidence_summary": "the note"}
    return text(f"```json\n{orjson.dumps(found).decode()}\n```")


def add(line: str) -> Reply:
    return call("write_file", description="w", path=NOTE, content=f"{line}\n", append=True)


async def set_goal(api: httpx.AsyncClient, objective: str = OBJECTIVE, **more: Any) -> dict[str, Any]:
    answer = await api.put("/threads/t1/goal", json={"objective": objective, **more})
    assert answer.status_code == 200, answer.text
    goal: dict[str, Any] = answer.json()["goal"]
    return goal


async def goal_of(api: httpx.AsyncClient) -> dict[str, Any] | None:
    found: dict[str, Any] | None = (await api.get("/threads/t1/goal")).json()["goal"]
    return found


async def say(api: httpx.AsyncClient, question: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": question}
    answer = await api.post("/threads/t1/runs/wait", json={"input": {"messages": [message]}, **more})
    values: dict[str, Any] = answer.json()
    return values


async def test_a_goal_is_set_before_its_thread_exists_changed_and_given_up(api: httpx.AsyncClient) -> None:
    nobody = await goal_of(api)
    first = await set_goal(api, "  find deer ", max_continuations=3)
    second = await set_goal(api)
    shown = (await api.get("/threads/t1/state")).json()["values"]["goal"]

    gone = await api.delete("/threads/t1/goal")
    again = await api.delete("/threads/t1/goal")
    elsewhere = await api.delete("/threads/nowhere/goal")

    assert nobody is None
    assert (first["objective"], first["status"], first["max_continuations"]) == ("find deer", "active", 3)
    assert (second["continuation_count"], second["no_progress_count"]) == (0, 0)
    assert second["max_no_progress_continuations"] == 2
    assert shown == second
    assert [answer.json() for answer in (gone, again, elsewhere)] == [{"goal": None}] * 3
    assert await goal_of(api) is None
    assert (await api.get("/threads/nowhere")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"objective": ""},
        {"objective": "  \n"},
        {"objective": "x" * 4001},
        {"objective": 7},
        {"objective": "x", "max_continuations": 9},
        {"objective": "x", "max_continuations": -1},
    ],
)
async def test_a_goal_that_makes_no_sense_is_refused(api: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await api.put("/threads/t1/goal", json=body)

    assert answer.status_code == 422
    assert await goal_of(api) is None


async def test_a_busy_thread_keeps_its_goal(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.on(JUDGE, judged(True))
    model.on("slow", text("late").held(gate))
    await set_goal(api)
    message = {"role": "user", "content": "slow"}
    run = (await api.post("/threads/t1/runs", json={"input": {"messages": [message]}})).json()["run_id"]

    changed = await api.put("/threads/t1/goal", json={"objective": "x"})
    dropped = await api.delete("/threads/t1/goal")
    gate.set()
    await api.get(f"/threads/t1/runs/{run}/join")

    assert (changed.status_code, dropped.status_code) == (409, 409)


async def test_the_agent_goes_on_until_the_goal_is_met(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    await set_goal(api)
    model.will_say(add("roe"), text("One is there."), judged(False))
    model.will_say(add("elk"), add("red"), text("All three."), judged(True))

    message = {"role": "user", "content": "Begin."}
    body = {"input": {"messages": [message]}, "stream_mode": ["values", "custom"]}
    streamed = parse_sse((await api.post("/threads/t1/runs/stream", json=body)).text)

    values = [data for event, data, _ in streamed if event == "values"][-1]
    told = [data for event, data, _ in streamed if event == "custom" and data["type"] == "goal_evaluated"]
    visible = [m["content"] for m in values["messages"] if not m["additional_kwargs"].get("hide_from_ui")]
    assert [each for each in visible if each and "note.txt" not in each] == [
        "Begin.",
        "One is there.",
        "All three.",
    ]
    hidden = [m for m in values["messages"] if m["additional_kwargs"].get("hide_from_ui")]
    assert len(hidden) == 1
    assert "two deer are missing" in hidden[0]["content"]
    assert [event["evaluation"]["satisfied"] for event in told] == [False, True]
    assert told[0]["goal"]["continuation_count"] == 1
    assert values["goal"] is None
    assert await goal_of(api) is None
    assert OBJECTIVE in model.requests[0].system
    run = (await api.get("/threads/t1/runs")).json()[0]
    assert run["status"] == "success"
    assert run["middleware_tokens"] > 0


@pytest.mark.parametrize("blocker", ["needs_user_input", "external_wait", "run_failed", "missing_evidence"])
async def test_a_goal_that_needs_somebody_is_left_with_the_reason(
    api: httpx.AsyncClient, model: ScriptedModel, blocker: str
) -> None:
    await set_goal(api)
    model.will_say(text("Which deer?"), judged(False, blocker, "the user has to choose"))

    values = await say(api, "Begin.")

    evaluation = values["goal"]["last_evaluation"]
    assert (evaluation["blocker"], evaluation["stand_down_reason"]) == (blocker, blocker)
    assert evaluation["reason"] == "the user has to choose"
    assert evaluation["run_id"] == (await api.get("/threads/t1/runs")).json()[0]["run_id"]
    assert values["goal"]["continuation_count"] == 0
    assert len(model.requests) == 2


async def test_an_agent_that_only_talks_is_stopped_after_two_steps_without_progress(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    await set_goal(api)
    model.on(JUDGE, judged(False))
    model.on("", text("I will soon."))

    values = await say(api, "Begin.")

    goal = values["goal"]
    assert goal["last_evaluation"]["stand_down_reason"] == "no_progress"
    assert (goal["no_progress_count"], goal["continuation_count"]) == (2, 2)
    assert len(model.requests) == 6


async def test_the_agent_goes_on_by_itself_only_so_often(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    await set_goal(api, max_continuations=1)
    model.will_say(add("roe"), text("One."), judged(False), add("elk"), text("Two."), judged(False))

    values = await say(api, "Begin.")

    assert values["goal"]["last_evaluation"]["stand_down_reason"] == "max_continuations"
    assert values["goal"]["continuation_count"] == 1
    assert values["messages"][-1]["content"] == "Two."


@pytest.mark.parametrize(
    "answer", ["nothing of use", "{broken", "[]", '{"satisfied": "yes"}', "<think>{}</think>"]
)
async def test_an_evaluation_that_fails_ends_the_turn_and_keeps_the_goal(
    api: httpx.AsyncClient, model: ScriptedModel, answer: str
) -> None:
    await set_goal(api)
    model.will_say(text("Done."), text(answer))

    values = await say(api, "Begin.")

    assert values["messages"][-1]["content"] == "Done."
    assert values["goal"]["last_evaluation"]["stand_down_reason"] == "evaluation_failed"


async def test_a_thread_without_a_goal_is_not_judged(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(text("Hello."))

    values = await say(api, "Hi.")

    assert len(model.requests) == 1
    assert "goal" not in values
    assert "<goal>" not in model.requests[0].system
