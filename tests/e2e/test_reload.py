"""An edit of config.yaml counts from the next run; a broken one is reported and changes nothing."""

from typing import Any

import httpx
import yaml
from support.gateway import Gateway
from support.model_server import ScriptedModel, text


async def run(api: httpx.AsyncClient, thread: str, **context: Any) -> dict[str, Any]:
    body = {"input": {"messages": ["hello"]}, "context": context}
    answer: dict[str, Any] = (await api.post(f"/threads/{thread}/runs/wait", json=body)).json()
    return answer


async def test_an_edit_counts_from_the_next_run_and_a_broken_one_keeps_the_last(
    gateway: Gateway, api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    async def names() -> list[str]:
        return [entry["name"] for entry in (await api.get("/models")).json()["models"]]

    async def config() -> dict[str, Any]:
        shown: dict[str, Any] = (await api.get(f"{gateway.url}/health")).json()["config"]
        return shown

    file = gateway.home / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    assert await names() == ["scripted"]

    settings["models"].append({**settings["models"][0], "name": "second", "model": "other-model"})
    file.write_text(yaml.safe_dump(settings))
    assert await names() == ["scripted", "second"]
    model.will_say(text("from the second"))
    answer = await run(api, "t1", model_name="second")
    assert answer["messages"][-1]["content"] == "from the second"
    assert model.requests[-1].body["model"] == "other-model"

    file.write_text("models: [{name: 7, use: 1}]\nsandbox: {use: local}\n")
    problem = (await config())["problem"]
    assert "last good settings stay in force" in problem
    assert "models" in problem
    model.will_say(text("still here"))
    assert (await run(api, "t1"))["messages"][-1]["content"] == "still here"
    assert await names() == ["scripted", "second"]

    del settings["models"][1]
    settings["sandbox"] = {"use": "local", "bash_output_max_chars": 4000}
    file.write_text(yaml.safe_dump(settings))
    assert (await config())["problem"] is None
    assert (await config())["restart_needed"] == ["sandbox"]
    assert await names() == ["scripted"]
    refused = await api.post("/threads/t1/runs", json={"context": {"model_name": "second"}})
    assert (refused.status_code, "second" in refused.text) == (400, True)


async def test_what_is_switched_on_shows_at_once_without_a_run(
    gateway: Gateway, api: httpx.AsyncClient
) -> None:
    file = gateway.home / "config.yaml"
    settings = yaml.safe_load(file.read_text())

    for is_on in (True, False, True):
        settings.update(agents_api={"enabled": is_on}, uploads={"max_files": 7 if is_on else 5})
        file.write_text(yaml.safe_dump(settings))

        agents = await api.get("/agents")
        assert (agents.status_code, "agents_api.enabled" in agents.text) == (
            (200, False) if is_on else (403, True)
        )
        assert (await api.get("/features")).json()["agents_api"] == {"enabled": is_on}
        limits = (await api.get("/threads/t1/uploads/limits")).json()
        assert limits["max_files"] == (7 if is_on else 5)


async def test_a_model_that_cannot_be_built_fails_its_runs_and_nothing_else(
    gateway: Gateway, api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    file = gateway.home / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["models"].append({"name": "broken", "use": "no_such_package:Model", "model": "x"})
    file.write_text(yaml.safe_dump(settings))

    failed = await run(api, "t1", model_name="broken")
    model.will_say(text("fine"))
    worked = await run(api, "t2")

    assert (failed.get("status"), "no_such_package" in str(failed)) == ("error", True), failed
    assert worked["messages"][-1]["content"] == "fine"


async def test_an_edit_that_cannot_be_built_is_reported_and_keeps_the_last(
    gateway: Gateway, api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    async def problem() -> Any:
        return (await api.get(f"{gateway.url}/health")).json()["config"]["problem"]

    file = gateway.home / "config.yaml"
    good = file.read_text()
    settings = yaml.safe_load(good)
    settings["models"][0]["fallbacks"] = [settings["models"][0]["name"]]
    file.write_text(yaml.safe_dump(settings))

    names = [entry["name"] for entry in (await api.get("/models")).json()["models"]]
    model.will_say(text("still here"), text("and again"))
    answer = await run(api, "t1")

    assert names == ["scripted"]
    assert answer["messages"][-1]["content"] == "still here"
    assert "last good settings stay in force" in await problem()
    assert "form a cycle" in await problem()
    file.write_text(good)
    assert (await run(api, "t1"))["messages"][-1]["content"] == "and again"
    assert await problem() is None


async def test_an_edit_of_the_extensions_beside_broken_settings_says_that_it_waits(
    gateway: Gateway, api: httpx.AsyncClient
) -> None:
    file = gateway.home / "config.yaml"
    good = file.read_text()
    servers = {"web": {"type": "http", "url": "http://8.8.8.8/mcp", "enabled": False}}

    file.write_text("models: [{name: 7, use: 1}]\n")
    waits = await api.put("/mcp/config", json={"mcp_servers": servers})
    file.write_text(good)
    counts = await api.put("/mcp/config", json={"mcp_servers": servers})

    assert waits.status_code == 409
    assert "written but not in force yet: the last good settings stay in force" in waits.text
    assert counts.status_code == 200
