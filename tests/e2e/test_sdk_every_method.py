"""No method of the public clients is without its route: each is called once, in Python and in JavaScript."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from support.gateway import Gateway
from support.model_server import ScriptedModel, text

HERE = Path(__file__).parent / "js"
LEAD = "lead_agent"
ASK: Any = {"messages": [{"role": "user", "content": "go"}]}
NIGHTLY = "0 3 * * *"
PARTS = ("assistants", "threads", "runs", "crons", "store")
Calls = dict[str, Callable[[], Awaitable[Any]]]


def methods_of(client: LangGraphClient) -> set[str]:
    return {
        f"{part}.{name}"
        for part in PARTS
        for name in dir(type(getattr(client, part)))
        if not name.startswith("_") and callable(getattr(type(getattr(client, part)), name))
    }


async def drained(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


async def first_of(stream: AsyncIterator[Any]) -> Any:
    async for item in stream:
        return item
    raise AssertionError("the stream was empty")


def assistant_calls(client: LangGraphClient) -> Calls:
    own = client.assistants
    return {
        "assistants.create": lambda: own.create(LEAD, assistant_id="a1"),
        "assistants.get": lambda: own.get("a1"),
        "assistants.get_graph": lambda: own.get_graph("a1"),
        "assistants.get_schemas": lambda: own.get_schemas("a1"),
        "assistants.get_subgraphs": lambda: own.get_subgraphs("a1"),
        "assistants.update": lambda: own.update("a1", name="A"),
        "assistants.get_versions": lambda: own.get_versions("a1"),
        "assistants.set_latest": lambda: own.set_latest("a1", 1),
        "assistants.search": own.search,
        "assistants.count": own.count,
        "assistants.delete": lambda: own.delete("a1"),
    }


def thread_calls(client: LangGraphClient) -> Calls:
    own = client.threads

    async def stream() -> Any:
        async with own.stream("t1", assistant_id=LEAD) as thread:
            await thread.run.start(input=ASK)
            return await asyncio.wait_for(thread.output, 60)

    async def join_stream() -> Any:
        stream = await own.join_stream("t1", last_event_id="0-0")
        return await asyncio.wait_for(first_of(stream), 60)

    return {
        "threads.create": lambda: own.create(thread_id="t1"),
        "threads.get": lambda: own.get("t1"),
        "threads.update": lambda: own.update("t1", metadata={"a": 1}),
        "threads.stream": stream,
        "threads.join_stream": join_stream,
        "threads.get_state": lambda: own.get_state("t1"),
        "threads.update_state": lambda: own.update_state("t1", {"title": "T"}),
        "threads.get_history": lambda: own.get_history("t1"),
        "threads.search": own.search,
        "threads.count": own.count,
        "threads.copy": lambda: own.copy("t1"),
        "threads.prune": lambda: own.prune(["t1"], strategy="keep_latest"),
    }


def run_calls(client: LangGraphClient) -> Calls:
    own = client.runs
    ids: list[str] = []

    async def create() -> Any:
        run = await own.create("t1", LEAD, input=ASK)
        ids.append(run["run_id"])

    return {
        "runs.create": create,
        "runs.join": lambda: own.join("t1", ids[0]),
        "runs.join_stream": lambda: drained(own.join_stream("t1", ids[0])),
        "runs.get": lambda: own.get("t1", ids[0]),
        "runs.list": lambda: own.list("t1"),
        "runs.stream": lambda: drained(own.stream("t1", LEAD, input=ASK)),
        "runs.wait": lambda: own.wait("t1", LEAD, input=ASK),
        "runs.create_batch": lambda: own.create_batch([{"assistant_id": LEAD, "input": ASK}]),  # type: ignore[list-item,typeddict-item]
        "runs.cancel": lambda: _cancelled(client),
        "runs.cancel_many": lambda: own.cancel_many(status="all"),
        "runs.delete": lambda: own.delete("t1", ids[0]),
    }


async def _cancelled(client: LangGraphClient) -> None:
    run = await client.runs.create("t2", LEAD, input=ASK, after_seconds=60, if_not_exists="create")
    await client.runs.cancel("t2", run["run_id"], wait=True)


def other_calls(client: LangGraphClient) -> Calls:
    crons, store = client.crons, client.store
    ids: list[str] = []

    async def create() -> Any:
        cron: Any = await crons.create(LEAD, schedule=NIGHTLY, input=ASK)
        ids.append(cron["cron_id"])

    return {
        "crons.create": create,
        "crons.create_for_thread": lambda: crons.create_for_thread("t1", LEAD, schedule=NIGHTLY, input=ASK),
        "crons.update": lambda: crons.update(ids[0], schedule="0 4 * * *"),
        "crons.search": crons.search,
        "crons.count": crons.count,
        "crons.delete": lambda: crons.delete(ids[0]),
        "store.put_item": lambda: store.put_item(["n"], "k", {"v": 1}),
        "store.get_item": lambda: store.get_item(["n"], "k"),
        "store.search_items": lambda: store.search_items(["n"]),
        "store.list_namespaces": lambda: store.list_namespaces(),
        "store.delete_item": lambda: store.delete_item(["n"], "k"),
        "threads.delete": lambda: client.threads.delete("t1"),
    }


async def test_every_method_of_the_python_client_is_answered(gateway: Gateway, model: ScriptedModel) -> None:
    model.on("go", text("there"))
    async with get_client(url=gateway.api, api_key=None) as client:
        calls = {
            **assistant_calls(client),
            **thread_calls(client),
            **run_calls(client),
            **other_calls(client),
        }

        for call in calls.values():
            await call()

        assert set(calls) == methods_of(client)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which this machine does not have")
async def test_every_method_of_the_js_client_is_answered(gateway: Gateway, model: ScriptedModel) -> None:
    model.on("go", text("there"))

    node = await asyncio.create_subprocess_exec(
        "node", str(HERE / "every_method.mjs"), f"{gateway.url}/api/langgraph", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(node.communicate(), 180)

    assert node.returncode == 0
    seen = json.loads(output)
    assert seen["failed"] == {}
    # LangGraph's own server has no route for it.
    assert seen["missing"] == ["threads.patchState"]
