"""Agents of a user's own, made and changed in conversation."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.gateway import Gateway, running_gateway
from support.model_server import Reply, ScriptedModel, call, text
from support.shared import fresh_model, shared_gateway

from deerflow.domain import new_id

NEW = {"agent_name": "Poet", "is_bootstrap": True}
SOUL = "# Poet\n\nYou answer in rhymes. 诗"


gateway = shared_gateway(agents_api={"enabled": True})
model = fresh_model


@pytest.fixture
async def api(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.client() as client:
        yield client
        for agent in (await client.get("/agents")).json()["agents"]:
            await client.delete(f"/agents/{agent['name']}")


async def say(
    api: httpx.AsyncClient, context: dict[str, Any], *, thread: str | None = None
) -> list[dict[str, Any]]:
    thread = thread or new_id()
    await api.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
    body = {"input": {"messages": [{"role": "user", "content": "hi"}]}, "context": context}
    answer = await api.post(f"/threads/{thread}/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def setup(soul: str = SOUL, **more: Any) -> Reply:
    return call("setup_agent", soul=soul, **more)


def result(messages: list[dict[str, Any]]) -> str:
    return str([message for message in messages if message["type"] == "tool"][-1]["content"])


def offered(model: ScriptedModel, request: int = -1) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[request].body["tools"]}


async def test_an_agent_is_made_in_conversation_and_there_at_once(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(
        setup(description="Writes verse", tool_groups=["file:read"], skills=[]), text("It is ready.")
    )

    messages = await say(api, NEW)
    listed = (await api.get("/agents")).json()["agents"]
    model.will_say(text("A deer so dear."))
    await say(api, {"agent_name": "poet"})

    assert "'poet' is ready" in result(messages)
    assert "<new_agent>" in str(model.requests[0].messages[0]["content"])
    assert "setup_agent" in offered(model, 0)
    (made,) = listed
    assert (made["name"], made["soul"], made["description"]) == ("poet", SOUL, "Writes verse")
    assert (made["tool_groups"], made["skills"]) == (["file:read"], [])
    prompt = str(model.requests[-1].messages[0]["content"])
    assert "You answer in rhymes." in prompt
    assert "<new_agent>" not in prompt
    assert "update_agent" in offered(model)
    assert not {"setup_agent", "bash", "write_file"} & offered(model)


async def test_only_its_own_conversation_makes_an_agent_anew(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(setup(), text("1"), setup("Funnier."), text("2"), setup("Hijacked."), text("3"))
    thread = new_id()

    await say(api, NEW, thread=thread)
    again = await say(api, NEW, thread=thread)
    elsewhere = await say(api, NEW)

    assert "'poet' is ready" in result(again)
    assert "exists already" in result(elsewhere)
    assert (await api.get("/agents/poet")).json()["soul"] == "Funnier."


async def test_an_agent_changes_itself_and_keeps_the_rest(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    await api.post("/agents", json={"name": "poet", "soul": "Old soul.", "description": "Writes"})
    await api.post("/agents", json={"name": "clerk", "soul": "Clerk's soul."})
    config = next((gateway.home / ".deer-flow").glob("users/*/agents/poet/config.yaml"))
    config.write_text(config.read_text() + "github: {bot_login: deer}\n")
    model.will_say(call("update_agent", soul="New soul.", skills=[]), text("Done."), text("Hello."))

    messages = await say(api, {"agent_name": "poet"})
    await say(api, {"agent_name": "poet"})

    assert "Changed: skills, soul" in result(messages) or "Changed: soul, skills" in result(messages)
    poet = (await api.get("/agents/poet")).json()
    assert (poet["soul"], poet["description"], poet["skills"]) == ("New soul.", "Writes", [])
    assert yaml.safe_load(config.read_text())["github"] == {"bot_login": "deer"}
    assert (await api.get("/agents/clerk")).json()["soul"] == "Clerk's soul."
    assert "New soul." in str(model.requests[-1].messages[0]["content"])


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"skills": ["no-such-skill"]}, "no-such-skill"),
        ({"tool_groups": ["root"]}, "file:read"),
        ({"model": "gpt-99"}, "scripted"),
        ({"soul": ""}, "soul"),
        ({"soul": "x" * 100_001}, "soul"),
        ({"soul": "a\0b"}, "NUL"),
        ({"description": "x" * 2001}, "description"),
        ({"skills": "all"}, "skills"),
    ],
)
async def test_what_cannot_be_an_agent_is_refused_with_what_could(
    api: httpx.AsyncClient, model: ScriptedModel, wishes: dict[str, Any], said: str
) -> None:
    model.will_say(call("setup_agent", **{"soul": SOUL, **wishes}), text("Sorry."))

    assert said in result(await say(api, NEW))
    assert (await api.get("/agents")).json() == {"agents": []}


@pytest.mark.parametrize("name", ["../../etc", "check", "a/b", "x" * 65, ""])
async def test_a_name_that_cannot_be_one_makes_nothing(
    api: httpx.AsyncClient, model: ScriptedModel, name: str
) -> None:
    model.will_say(setup(), text("Sorry."))

    messages = await say(api, {"agent_name": name, "is_bootstrap": True})

    assert "names no agent" in result(messages)
    assert (await api.get("/agents")).json() == {"agents": []}


async def test_of_two_conversations_at_once_one_makes_the_agent(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("hi", setup(), text("ok"))

    told = await asyncio.gather(*(say(api, NEW) for _ in range(4)))

    assert sorted("is ready" in result(messages) for messages in told) == [False, False, False, True]
    assert len((await api.get("/agents")).json()["agents"]) == 1


async def test_where_the_setting_is_off_agents_are_neither_made_nor_changed(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.will_say(setup(), text("No."))

    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as api:
            messages = await say(api, NEW)

    assert "setup_agent" not in offered(model, 0)
    assert "setup_agent" in result(messages)
    assert not list((tmp_path / ".deer-flow").glob("users/*/agents/*"))
