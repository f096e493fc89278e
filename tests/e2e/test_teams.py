"""Teams over HTTP: as a run of their own, with a person's decisions, after a crash, and without a model."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import GatewayProcess, parse_sse, running_gateway
from support.model_server import Request, ScriptedModel, text
from support.waiting import stored, until_idle

from deerflow.client import AsyncDeerFlowClient, ClientEvent
from deerflow.subagents.teams import TeamRequest

STEPS = [
    {"id": "money", "role": "financial_analyst", "task": "the money of it"},
    {"id": "market", "role": "market_researcher", "task": "the market of it"},
    {"id": "law", "role": "compliance_checker", "task": "the law of it", "needs": ["money", "market"]},
]


def says(words: str) -> Any:
    return lambda request: words in request.system


def is_lead(request: Request) -> bool:
    return "You are DeerFlow" in request.system


def script(model: ScriptedModel) -> None:
    model.on(says("You plan the work of a team"), text(json.dumps({"steps": STEPS})))
    model.on(says("You are a financial analyst"), text("It earns 5 M."))
    model.on(says("You are a market researcher"), text("A third of the market."))
    model.on(says("You are a compliance checker"), text("Nothing speaks against it."))
    model.on(says("You make one answer of the reports"), text("Buy it."))
    model.on(is_lead, text("The team says: buy it."))


def team_of(events: list[tuple[str, Any, str | None]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the result of the team and the last answer of the run."""
    messages = [data for kind, data, _ in events if kind == "values"][-1]["messages"]
    return next(message for message in messages if message["type"] == "tool"), messages[-1]


async def test_a_run_that_begins_with_a_team_asks_no_model_whether_to(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    script(model)
    body = {"team": {"goal": "Shall we buy Acme?"}, "stream_mode": ["values", "custom"]}

    response = await api.post("/threads/t1/teams/runs/stream", json=body)

    assert response.status_code == 200, response.text
    events = parse_sse(response.text)
    result, answer = team_of(events)
    assert result["content"] == "The team is done.\n\nBuy it."
    assert answer["content"] == "The team says: buy it."
    assert len(result["tool_call_id"]) <= 40  # more, and OpenAI refuses the whole conversation
    told = [data for kind, data, _ in events if kind == "custom"]
    assert [event["type"] for event in told if event["type"].startswith("team_")] == [
        "team_started",
        "team_planned",
        "team_ended",
    ]
    done = [event["task_id"].rpartition(".")[2] for event in told if event["type"] == "task_completed"]
    assert done[0] == "plan"
    assert sorted(done[1:3]) == ["market", "money"]
    assert done[3:] == ["law", "join"]
    assert len([request for request in model.requests if is_lead(request)]) == 1
    state = (await api.get("/threads/t1/state")).json()
    assert state["values"]["title"]


async def test_a_person_decides_over_http(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    script(model)
    team = {"goal": "Shall we?", "steps": STEPS[:1], "approve": ["result"]}

    response = await api.post(
        "/threads/t1/teams/runs/stream", json={"team": team, "stream_mode": ["updates"]}
    )
    thread = (await api.get("/threads/t1")).json()
    asked = [
        data["__interrupt__"] for kind, data, _ in parse_sse(response.text) if "__interrupt__" in (data or {})
    ]
    decision = {"decisions": [{"type": "reject", "message": "too dear"}]}
    second = await api.post(
        "/threads/t1/runs/stream",
        json={"command": {"resume": decision}, "context": {"subagent_enabled": True}},
    )

    assert thread["status"] == "interrupted"
    request = asked[0][0]["value"]["action_requests"][0]
    assert (request["name"], request["args"]) == ("approve_result", {"answer": "It earns 5 M."})
    result, _ = team_of(parse_sse(second.text))
    assert result["status"] == "error"
    assert "A person did not approve: too dear" in result["content"]


async def test_a_decision_that_nobody_makes_is_a_rejection_in_time(
    tmp_path: Path, model: ScriptedModel
) -> None:
    script(model)
    team = {"goal": "Shall we?", "steps": STEPS[:1], "approve": ["result"]}
    with running_gateway(tmp_path, model.base_url, guardrails={"ask_timeout_seconds": 1}) as gateway:
        async with gateway.client() as api:
            await api.post("/threads/t1/teams/runs/stream", json={"team": team})
            await until_idle(api, "t1")
            messages = (await api.get("/threads/t1/state")).json()["values"]["messages"]

    assert "A person did not approve: nobody answered within 1 seconds" in messages[-2]["content"]
    assert "It earns 5 M." in messages[-2]["content"]
    assert messages[-1]["content"] == "The team says: buy it."


@pytest.mark.parametrize(
    ("team", "status", "reason"),
    [
        ({}, 422, "goal"),
        ({"goal": ""}, 422, "goal"),
        ({"goal": "x" * 20_001}, 422, "20000"),
        ({"goal": "g", "unknown": 1}, 422, "unknown"),
        ({"goal": "g", "approve": ["everything"]}, 422, "approve"),
        ({"goal": "g", "project_id": "../up"}, 422, "project_id"),
        ({"goal": "g", "members": ["wizard"]}, 400, "there are: financial_analyst"),
        ({"goal": "g", "steps": [{**STEPS[0], "needs": ["money"]}]}, 400, "wait for each other"),
        ({"goal": "g", "steps": STEPS[2:]}, 400, "which is no step"),
    ],
)
async def test_a_bad_request_is_refused_before_anything_is_stored(
    api: httpx.AsyncClient, team: dict[str, Any], status: int, reason: str
) -> None:
    response = await api.post("/threads/t1/teams/runs", json={"team": team})

    assert response.status_code == status
    assert reason in response.text
    assert (await api.get("/threads/t1")).status_code == 404


async def test_roles_are_listed_and_teams_can_be_switched_off(tmp_path: Path, model: ScriptedModel) -> None:
    own = {"description": "law", "system_prompt": "You know the law."}
    with running_gateway(
        tmp_path, model.base_url, teams={"enabled": False, "roles": {"lawyer": own}}
    ) as gateway:
        async with gateway.client() as client:
            roles = (await client.get("/teams/roles")).json()["roles"]
            refused = await client.post("/threads/t1/teams/runs", json={"team": {"goal": "g"}})

    assert {"name": "lawyer", "description": "law", "stage": "work"} in roles
    assert len(roles) == 8
    assert (refused.status_code, "teams.enabled" in refused.text) == (409, True)


async def test_cancelling_the_run_stops_every_member(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.on(says("You are a financial analyst"), text("never").held(gate))
    model.on(says("You are a market researcher"), text("never").held(gate))
    run = (await api.post("/threads/t1/teams/runs", json={"team": {"goal": "g", "steps": STEPS}})).json()
    await _seen(api, run["run_id"], "task_started", count=2)

    async with asyncio.timeout(60):  # their answers never come
        await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?wait=1")

    stream = await api.get(f"/threads/t1/runs/{run['run_id']}/stream?stream_mode=custom")
    ended = [
        data["task_id"]
        for _, data, _ in parse_sse(stream.text)
        if (data or {}).get("type") == "task_cancelled"
    ]
    gate.set()
    assert len(ended) == 2


async def test_after_a_crash_members_that_were_done_are_not_asked_again(
    tmp_path: Path, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on(says("You are a financial analyst"), text("It earns 5 M."))
    model.on(says("You are a market researcher"), text("A third.").held(gate))
    model.on(says("You are a compliance checker"), text("fine"))
    model.on(says("You make one answer of the reports"), text("Buy it."))
    model.on(is_lead, text("Done."))
    gateway = GatewayProcess(tmp_path, model.base_url).start()
    try:
        async with gateway.client() as client:
            body = {"team": {"goal": "g", "steps": STEPS}}
            run = (await client.post("/threads/t1/teams/runs", json=body)).json()
            await _seen(client, run["run_id"], "task_completed")
            await stored(client)
            gateway.kill()
            gate.set()
            gateway.start()
            values = (await client.get(f"/threads/t1/runs/{run['run_id']}/join")).json()
    finally:
        gateway.stop()

    tool = next(message for message in values["messages"] if message["type"] == "tool")
    assert tool["content"] == "The team is done.\n\nBuy it."
    assert (
        len([request for request in model.requests if "You are a financial analyst" in request.system]) == 1
    )


async def _seen(client: httpx.AsyncClient, run_id: str, kind: str, *, count: int = 1) -> None:
    async with client.stream("GET", f"/threads/t1/runs/{run_id}/stream?stream_mode=custom") as stream:
        async for line in stream.aiter_lines():
            count -= f'"{kind}"' in line
            if count == 0:
                return


async def test_the_embedded_client_runs_a_team_and_sees_its_steps(
    tmp_path: Path, model: ScriptedModel
) -> None:
    script(model)
    with running_gateway(tmp_path, model.base_url) as gateway:
        assert gateway.deerflow is not None
        assert gateway.loop is not None

        async def work() -> tuple[str, list[ClientEvent]]:
            client = AsyncDeerFlowClient(gateway.deerflow)  # type: ignore[arg-type]
            answer = await client.run_team(TeamRequest(goal="Shall we?", members=["financial_analyst"]))
            events = [
                each async for each in client.stream("go", team=TeamRequest(goal="g"), modes=["custom"])
            ]
            return answer, events

        asking = asyncio.run_coroutine_threadsafe(work(), gateway.loop)
        answer, events = await asyncio.wrap_future(asking)

    assert answer == "The team says: buy it."
    assert "team_ended" in [event.data["type"] for event in events if event.event == "custom"]


async def test_without_any_model_a_team_still_plans_works_and_answers(tmp_path: Path) -> None:
    with running_gateway(tmp_path, None) as gateway:
        async with gateway.client() as client:
            note = (
                "# Acme\n\nAcme had a revenue of 5 million euros in 2025. Its market share is 30 percent.\n"
            )
            await client.post("/threads", json={"thread_id": "t1"})
            uploaded = await client.post("/threads/t1/uploads", files={"files": ("acme.md", note.encode())})
            assert uploaded.status_code == 200, uploaded.text
            team = {
                "goal": "What are the revenue and the market share of Acme?",
                "documents": ["/mnt/user-data/uploads/acme.md"],
            }
            response = await client.post(
                "/threads/t1/teams/runs/stream", json={"team": team, "stream_mode": ["values", "custom"]}
            )

    result, answer = team_of(parse_sse(response.text))
    planned = next(
        data for _, data, _ in parse_sse(response.text) if (data or {}).get("type") == "team_planned"
    )
    assert planned["source"] == "rules"
    assert result["status"] == "success"
    assert "5 million" in result["content"]
    assert answer["content"]
