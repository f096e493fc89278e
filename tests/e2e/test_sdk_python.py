"""The public `langgraph_sdk` client, unmodified, against a real gateway."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, text

MODES: Any = ["values", "messages-tuple", "updates", "custom"]


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


@pytest.fixture(params=["/api", "/api/langgraph"])
async def client(gateway: Gateway, request: pytest.FixtureRequest) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=f"{gateway.url}{request.param}", api_key=None) as opened:
        yield opened


async def test_create_a_thread_and_stream_a_run(client: LangGraphClient, model: ScriptedModel) -> None:
    model.will_say(call("ls", description="look", path="/mnt/user-data/workspace"), text("All quiet."))
    thread = await client.threads.create(metadata={"from": "python"})

    parts = [
        part
        async for part in client.runs.stream(
            thread["thread_id"], "lead_agent", input=ask("look around"), stream_mode=MODES
        )
    ]

    assert parts[0].event == "metadata"
    assert {part.event for part in parts} >= {"metadata", "values", "messages", "updates"}
    streamed = [part.data[0] for part in parts if part.event == "messages"]
    values = [part.data for part in parts if part.event == "values"][-1]
    state = await client.threads.get_state(thread["thread_id"])
    history = await client.threads.get_history(thread["thread_id"], limit=5)
    ids = [message["id"] for message in values["messages"]]
    assert {message["id"] for message in streamed} <= set(ids)
    assert [message["id"] for message in state["values"]["messages"]] == ids
    assert [message["id"] for message in history[0]["values"]["messages"]] == ids
    assert history[0]["checkpoint"]["checkpoint_id"] == state["checkpoint"]["checkpoint_id"]


async def test_wait_create_join_and_join_stream(client: LangGraphClient, model: ScriptedModel) -> None:
    model.on("wait", text("waited"))
    model.on("join", text("joined in four words", delay=0.02))
    thread = (await client.threads.create())["thread_id"]

    waited: Any = await client.runs.wait(thread, "lead_agent", input=ask("wait"))
    run = await client.runs.create(thread, "lead_agent", input=ask("join"), stream_mode=MODES)
    joined: Any = await client.runs.join(thread, run["run_id"])
    whole = [part async for part in client.runs.join_stream(thread, run["run_id"], stream_mode=MODES)]
    middle = whole[len(whole) // 2]
    rest = [
        part
        async for part in client.runs.join_stream(
            thread, run["run_id"], stream_mode=MODES, last_event_id=middle.id
        )
    ]

    assert waited["messages"][-1]["content"] == "waited"
    assert joined["messages"][-1]["content"] == "joined in four words"
    assert rest == whole[len(whole) // 2 + 1 :]


async def test_cancel_list_and_search(client: LangGraphClient, model: ScriptedModel) -> None:
    model.will_say(text("never " * 500, delay=0.2))
    thread = await client.threads.create(metadata={"kind": "search me"})
    other = await client.threads.create(thread_id="abc-123", if_exists="do_nothing")
    run = await client.runs.create(thread["thread_id"], "lead_agent", input=ask("go"))

    await client.runs.cancel(thread["thread_id"], run["run_id"], wait=True)

    runs = await client.runs.list(thread["thread_id"])
    found = await client.threads.search(metadata={"kind": "search me"})
    assert [(item["run_id"], item["status"]) for item in runs] == [(run["run_id"], "interrupted")]
    assert [item["thread_id"] for item in found] == [thread["thread_id"]]
    assert other["thread_id"] == "abc-123"


async def test_stateless_runs_assistants_and_state_updates(
    client: LangGraphClient, model: ScriptedModel
) -> None:
    model.will_say(text("no thread of yours"))
    parts = [
        part async for part in client.runs.stream(None, "lead_agent", input=ask("x"), stream_mode="values")
    ]
    thread = parts[0].data["thread_id"]

    await client.threads.update_state(thread, {"title": "My title"})

    assert parts[-2].data["messages"][-1]["content"] == "no thread of yours"
    assert (await client.threads.get(thread))["values"]["title"] == "My title"
    assert [item["assistant_id"] for item in await client.assistants.search()] == ["lead_agent"]
    assert (await client.assistants.get("lead_agent"))["graph_id"] == "lead_agent"
    await client.threads.delete(thread)
    assert await client.threads.search() == []
