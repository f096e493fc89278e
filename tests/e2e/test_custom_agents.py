"""Agents of the user's own, made over HTTP and used by name."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.gateway import running_gateway
from support.model_server import ScriptedModel, text


@pytest.fixture
async def api(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[httpx.AsyncClient]:
    with running_gateway(tmp_path, model.base_url, agents_api={"enabled": True}) as gateway:
        async with gateway.client() as client:
            yield client


async def say(api: httpx.AsyncClient, **more: Any) -> httpx.Response:
    await api.post("/threads", json={"thread_id": "t1", "if_exists": "do_nothing"})
    body = {"input": {"messages": [{"role": "user", "content": "hi"}]}, **more}
    return await api.post("/threads/t1/runs/wait", json=body)


async def test_an_agent_is_made_read_changed_and_deleted(api: httpx.AsyncClient, tmp_path: Path) -> None:
    free = (await api.get("/agents/check", params={"name": "Poet"})).json()
    made = await api.post("/agents", json={"name": "Poet", "description": "Writes", "soul": "You rhyme. 诗"})
    twice = await api.post("/agents", json={"name": "poet"})
    taken = (await api.get("/agents/check", params={"name": "poet"})).json()
    config = next((tmp_path / ".deer-flow").glob("users/*/agents/poet/config.yaml"))
    config.write_text(config.read_text() + "github: {bot_login: deer}\n")
    changed = await api.put("/agents/poet", json={"skills": [], "model_settings": {"temperature": 0.5}})
    listed = (await api.get("/agents")).json()["agents"]
    deleted = await api.delete("/agents/poet")
    gone = await api.get("/agents/poet")

    assert (free, taken["available"]) == ({"available": True, "name": "poet"}, False)
    assert (made.status_code, twice.status_code) == (201, 409)
    assert changed.json()["soul"] == "You rhyme. 诗"
    assert (changed.json()["description"], changed.json()["skills"]) == ("Writes", [])
    assert listed == [changed.json()]
    assert (deleted.status_code, gone.status_code) == (204, 404)
    assert not config.exists()


async def test_keys_that_we_do_not_know_stay_in_the_file(api: httpx.AsyncClient, tmp_path: Path) -> None:
    await api.post("/agents", json={"name": "poet"})
    config = next((tmp_path / ".deer-flow").glob("users/*/agents/poet/config.yaml"))
    config.write_text(config.read_text() + "github: {bot_login: deer}\n")

    await api.put("/agents/poet", json={"description": "new"})

    kept = yaml.safe_load(config.read_text())
    assert (kept["github"], kept["description"]) == ({"bot_login": "deer"}, "new")


@pytest.mark.parametrize("how", [{"context": {"agent_name": "Poet"}}, {"assistant_id": "poet"}])
async def test_a_run_has_the_agents_soul_tools_and_manner(
    api: httpx.AsyncClient, model: ScriptedModel, how: dict[str, Any]
) -> None:
    agent = {
        "name": "poet",
        "soul": "You speak in rhymes only.",
        "tool_groups": ["file:read"],
        "model_settings": {"temperature": 0.25, "max_tokens": 77},
    }
    await api.post("/agents", json=agent)
    model.will_say(text("A deer so dear."))

    answer = await say(api, **how)

    asked = model.requests[-1].body
    tools = {each["function"]["name"] for each in asked["tools"]}
    assert answer.json()["messages"][-1]["content"] == "A deer so dear."
    assert "<soul>\nYou speak in rhymes only.\n</soul>" in str(asked["messages"][0]["content"]).replace(
        "\\n", "\n"
    )
    assert "read_file" in tools
    assert not {"bash", "write_file"} & tools
    assert asked["temperature"] == 0.25
    assert 77 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))


@pytest.mark.parametrize("name", ["nobody", "../../etc", "a/b", "", "x" * 200, "."])
async def test_an_agent_that_is_not_there_is_refused_before_anything_runs(
    api: httpx.AsyncClient, name: str
) -> None:
    answer = await say(api, context={"agent_name": name})

    assert answer.status_code == 404
    assert (await api.get("/threads/t1/runs")).json() == []


async def test_an_agent_that_is_only_being_made_needs_no_files_yet(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("What shall I be?"))

    answer = await say(api, context={"agent_name": "newborn", "is_bootstrap": True})

    assert answer.json()["messages"][-1]["content"] == "What shall I be?"


@pytest.mark.parametrize(
    "agent",
    [
        {"name": "../x"},
        {"name": "-a"},
        {"name": "check"},
        {"name": "ok", "model": "no-such-model"},
        {"name": "ok", "model_settings": {"temperature": 3}},
        {"name": "ok", "reasoning_effort": "extreme"},
        {"name": "ok", "colour": "red"},
        {"name": "ok", "soul": "x" * 100_001},
        {},
    ],
)
async def test_what_cannot_be_an_agent_is_refused(api: httpx.AsyncClient, agent: dict[str, Any]) -> None:
    assert (await api.post("/agents", json=agent)).status_code == 422
    assert (await api.get("/agents")).json() == {"agents": []}


async def test_each_agent_is_an_assistant(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.on("hi", text("ho"))
    await api.post("/agents", json={"name": "quiet-poet", "description": "Writes 诗"})
    kept = (await api.post("/assistants", json={"graph_id": "lead_agent", "name": "Kept"})).json()

    found = (await api.post("/assistants/search", json={})).json()
    second = (await api.post("/assistants/search", json={"limit": 1, "offset": 1})).json()
    named = (await api.post("/assistants/search", json={"name": "poet"})).json()
    count = (await api.post("/assistants/count", json={})).json()
    poet = await api.get("/assistants/quiet-poet")
    graph = await api.get("/assistants/quiet-poet/graph")
    refused = await api.patch("/assistants/quiet-poet", json={"name": "x"})
    taken = await api.post("/assistants", json={"graph_id": "lead_agent", "assistant_id": "quiet-poet"})
    answer = await say(api, assistant_id="Quiet_Poet")

    assert [item["assistant_id"] for item in found] == ["lead_agent", "quiet-poet", kept["assistant_id"]]
    assert second == named == [poet.json()]
    assert count == 3
    assert (poet.json()["graph_id"], poet.json()["description"]) == ("lead_agent", "Writes 诗")
    assert poet.json()["metadata"] == {"created_by": "user"}
    assert graph.status_code == 200
    assert (refused.status_code, taken.status_code) == (409, 409)
    assert "/api/agents/quiet-poet" in refused.json()["detail"]
    assert answer.json()["messages"][-1]["content"] == "ho"


async def test_an_older_place_is_read_and_broken_files_say_what_is_wrong(
    api: httpx.AsyncClient, tmp_path: Path, model: ScriptedModel
) -> None:
    for name, config in (("old", "description: From before\n"), ("bad", "skills: 7\n")):
        folder = tmp_path / ".deer-flow/agents" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config)

    listed = (await api.get("/agents")).json()["agents"]
    broken = await say(api, context={"agent_name": "bad"})

    assert [agent["description"] for agent in listed] == ["From before"]
    assert broken.status_code == 400
    assert "skills" in broken.text


async def test_without_the_setting_agents_are_not_for_http(tmp_path: Path, model: ScriptedModel) -> None:
    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as api:
            answer = await api.get("/agents")

    assert answer.status_code == 403
    assert "agents_api.enabled" in answer.json()["detail"]


async def test_the_thread_protocol_knows_agents_by_name_too(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    await api.post("/agents", json={"name": "poet", "soul": "You speak in rhymes only."})
    model.will_say(text("A deer so dear."))

    params = {"assistant_id": "poet", "input": {"messages": [{"role": "user", "content": "hi"}]}}
    answer = await api.post("/threads/t1/commands", json={"id": 1, "method": "run.start", "params": params})
    run_id = answer.json()["result"]["run_id"]
    ended = await api.get(f"/threads/t1/runs/{run_id}/join")

    assert ended.json()["messages"][-1]["content"] == "A deer so dear."
    assert "You speak in rhymes only." in str(model.requests[-1].body)
