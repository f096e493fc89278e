"""Every method of the public `langgraph_sdk` client that has a route here, each through the real thing."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, text
from support.waiting import until

LEAD = "lead_agent"


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=f"{gateway.url}/api", api_key=None) as opened:
        yield opened


async def status_of(work: Any) -> int:
    with pytest.raises((httpx.HTTPStatusError, APIStatusError)) as caught:
        await work
    return int(caught.value.response.status_code)


async def test_assistants_live_in_versions(client: LangGraphClient) -> None:
    made = await client.assistants.create(
        LEAD, name="Deer expert", metadata={"team": "deer"}, context={"is_plan_mode": True}
    )
    name = made["assistant_id"]
    again = await client.assistants.create(LEAD, assistant_id=name, if_exists="do_nothing")
    changed = await client.assistants.update(name, description="Knows deer.", metadata={"level": 2})
    versions = await client.assistants.get_versions(name)
    restored = await client.assistants.set_latest(name, 1)

    assert (made["version"], again["assistant_id"], again["name"]) == (1, name, "Deer expert")
    assert (changed["version"], changed["description"], changed["name"]) == (2, "Knows deer.", "Deer expert")
    assert changed["metadata"] == {"created_by": "user", "team": "deer", "level": 2}
    assert [version["version"] for version in versions] == [2, 1]
    assert (restored["version"], restored["description"]) == (1, None)
    assert (await client.assistants.get(name))["context"] == {"is_plan_mode": True}
    assert await client.assistants.count() == 2
    assert await client.assistants.count(metadata={"team": "deer"}) == 1
    assert [item["assistant_id"] for item in await client.assistants.search()] == [LEAD, name]
    assert await client.assistants.search(name="EXPERT", select=["name"]) == [{"name": "Deer expert"}]
    assert [item["name"] for item in await client.assistants.search(limit=1, offset=1)] == ["Deer expert"]
    await client.assistants.delete(name)
    assert await status_of(client.assistants.get(name)) == 404
    assert await status_of(client.assistants.delete(LEAD)) == 409
    assert await status_of(client.assistants.create("other_graph")) == 400
    assert await status_of(client.assistants.create(LEAD, assistant_id=LEAD)) == 409


async def test_an_assistants_graph_and_shapes_can_be_read(client: LangGraphClient) -> None:
    graph = await client.assistants.get_graph(LEAD)
    schemas = await client.assistants.get_schemas(LEAD)

    assert {node["id"] for node in graph["nodes"]} >= {"__start__", "model", "tools", "__end__"}
    assert {"source": "tools", "target": "model", "conditional": True} in graph["edges"]
    assert "messages" in schemas["input_schema"]["properties"]
    assert "model_name" in schemas["context_schema"]["properties"]
    assert await client.assistants.get_subgraphs(LEAD) == {}
    assert await client.assistants.get_subgraphs(LEAD, namespace="tools", recurse=True) == {}
    assert await status_of(client.assistants.get_graph("nobody")) == 404


async def test_an_assistants_defaults_count_where_a_run_says_nothing(
    client: LangGraphClient, model: ScriptedModel
) -> None:
    model.on("go", call("ls", description="x", path="/mnt/user-data/workspace"))
    made = await client.assistants.create(LEAD, config={"recursion_limit": 4})

    limited: Any = await client.runs.wait(None, made["assistant_id"], input=ask("go"), raise_error=False)
    wider: Any = await client.runs.wait(
        None, made["assistant_id"], input=ask("go"), config={"recursion_limit": 6}, raise_error=False
    )

    assert "all 4 steps" in str(limited)
    assert "all 6 steps" in str(wider)
    assert await status_of(client.runs.create(None, "nobody", input=ask("go"))) == 404


async def test_threads_are_made_found_copied_and_pruned(
    client: LangGraphClient, model: ScriptedModel, gateway: Gateway
) -> None:
    model.on(
        "note",
        call("write_file", description="w", path="/mnt/user-data/workspace/a.txt", content="A"),
        text("ok"),
    )
    thread = await client.threads.create(thread_id="t1", metadata={"kind": "x"}, graph_id=LEAD, ttl=60)
    await client.runs.wait("t1", LEAD, input=ask("note"))
    await client.threads.update("t1", metadata={"more": 1}, ttl={"ttl": 5, "strategy": "delete"})
    await client.threads.create(thread_id="t2", metadata={"kind": "x"})

    copied: Any = await client.threads.copy("t1")
    by_value = await client.threads.search(values={"artifacts": []}, metadata={"kind": "x"})
    extracted: Any = await client.threads.search(
        ids=["t1"],
        select=["thread_id"],
        extract={"last": "values.messages[-1].content", "none": "values.x[3]"},
    )
    selected: Any = await client.threads.search(ids=["t1"], select=["values"])

    assert thread["metadata"] == {"kind": "x", "graph_id": LEAD}
    assert copied["thread_id"] not in ("t1", "t2")
    assert copied["values"]["messages"][-1]["content"] == "ok"
    files = gateway.home / ".deer-flow/users/default/threads" / copied["thread_id"] / "user-data/workspace"
    assert (files / "a.txt").read_text() == "A"
    assert (await client.threads.get("t1"))["metadata"]["more"] == 1
    assert extracted == [{"thread_id": "t1", "extracted": {"last": "ok", "none": None}}]
    assert selected[0]["values"]["messages"][0]["content"] == "note"
    assert {item["thread_id"] for item in by_value} <= {"t1", copied["thread_id"]}
    assert await client.threads.count(metadata={"kind": "x"}) == 3
    assert await client.threads.prune(["t1"], strategy="keep_latest") == {"pruned_count": 1}
    assert len(await client.threads.get_history("t1")) < 10
    assert (await client.threads.get_state("t1"))["values"]["messages"][-1]["content"] == "ok"
    assert await client.threads.prune(["t1", "t2"]) == {"pruned_count": 2}
    assert await status_of(client.threads.get("t1")) == 404
    assert await status_of(client.threads.create(thread_id=copied["thread_id"], if_exists="raise")) == 409
    assert await status_of(client.threads.search(extract={"a": "]["})) == 400


async def test_states_are_read_in_parts_and_threads_taken_in_from_elsewhere(
    client: LangGraphClient, model: ScriptedModel
) -> None:
    steps: Any = [
        {"updates": [{"values": ask("from elsewhere"), "as_node": "__start__"}]},
        {"updates": [{"values": {"messages": [{"role": "ai", "content": "hello"}]}, "as_node": "model"}]},
    ]
    await client.threads.create(thread_id="t1", supersteps=steps)
    head = await client.threads.get_state("t1")

    part = await client.threads.get_state("t1", select=["values.messages", "next"])
    at: Any = await client.threads.get_state("t1", checkpoint=head["checkpoint"], select=["values.title"])
    by_id = await client.threads.get_state("t1", checkpoint_id=head["checkpoint"]["checkpoint_id"])
    history: Any = await client.threads.get_history("t1", limit=1, select=["checkpoint"])

    assert [message["content"] for message in part["values"]["messages"]] == ["from elsewhere", "hello"]
    assert set(part) == {"values", "next"}
    assert set(at) == {"values"}
    assert by_id["values"] == head["values"]
    assert set(history[0]) == {"checkpoint"}


async def test_runs_are_started_in_every_way(client: LangGraphClient, model: ScriptedModel) -> None:
    model.on("go", text("there"))
    seen: list[Any] = []

    created = await client.runs.create(None, LEAD, input=ask("go"), on_run_created=seen.append)
    batch = await client.runs.create_batch(
        [{"assistant_id": LEAD, "input": ask("go")}, {"assistant_id": "nobody", "input": ask("go")}]  # type: ignore[list-item, typeddict-item]
    )
    joined: Any = await client.runs.join(created["thread_id"], created["run_id"])
    listed = await client.runs.list(created["thread_id"], status="success", select=["run_id"])
    durable: Any = await client.runs.wait(
        "t9", LEAD, input=ask("go"), durability="exit", if_not_exists="create"
    )

    assert seen[0]["run_id"] == created["run_id"]
    assert joined["messages"][-1]["content"] == "there"
    assert (batch[0]["assistant_id"], batch[1]["code"]) == (LEAD, "not_found")  # type: ignore[typeddict-item]
    assert listed == [{"run_id": created["run_id"]}]
    assert durable["messages"][-1]["content"] == "there"
    assert len(await client.threads.get_history("t9")) <= 2  # only the ends are kept
    assert await status_of(client.runs.create("t8", LEAD, input=ask("go"), if_not_exists="reject")) == 404
    await client.runs.delete(created["thread_id"], created["run_id"])
    assert await status_of(client.runs.get(created["thread_id"], created["run_id"])) == 404


async def test_a_stateless_thread_goes_with_its_run_when_asked(
    client: LangGraphClient, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.runtime.threads._LINGER_SECONDS", 1.5)
    model.on("go", text("there"))

    gone: Any = await client.runs.wait(None, LEAD, input=ask("go"), on_completion="delete")
    kept = await client.runs.create("mine", LEAD, input=ask("go"), on_completion="delete")
    await client.runs.join("mine", kept["run_id"])

    async def is_alone() -> bool:
        return await client.threads.count() == 1

    await until(is_alone)  # the deletion has no event to wait for
    assert gone["messages"][-1]["content"] == "there"
    assert [thread["thread_id"] for thread in await client.threads.search()] == ["mine"]


async def test_every_stream_mode_arrives(client: LangGraphClient, model: ScriptedModel) -> None:
    model.will_say(call("ls", description="x", path="/mnt/user-data/workspace"), text("All quiet."))
    modes: Any = [
        "values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "debug", "events",
    ]  # fmt: skip

    parts = [part async for part in client.runs.stream(None, LEAD, input=ask("look"), stream_mode=modes)]

    kinds = {part.event for part in parts}
    assert kinds >= {
        "metadata",
        "values",
        "updates",
        "messages",
        "tasks",
        "checkpoints",
        "debug",
        "events",
        "end",
    }
    assert "fence" not in str([part.data for part in parts])
    assert {part.data["event"] for part in parts if part.event == "events"} >= {
        "on_chat_model_stream",
        "on_tool_end",
    }
    assert [part for part in parts if part.event == "values"][-1].data["messages"][-1][
        "content"
    ] == "All quiet."


async def test_messages_in_the_older_form_hold_the_whole_so_far(
    client: LangGraphClient, model: ScriptedModel
) -> None:
    model.will_say(call("ls", description="x", path="/mnt/user-data/workspace"), text("one two three"))
    thread = (await client.threads.create())["thread_id"]

    parts = [
        part async for part in client.runs.stream(thread, LEAD, input=ask("look"), stream_mode="messages")
    ]
    run = (await client.runs.list(thread))[0]["run_id"]
    middle = parts[len(parts) // 2]
    rest = [
        part
        async for part in client.runs.join_stream(
            thread, run, stream_mode="messages", last_event_id=middle.id
        )
    ]

    kinds = [part.event for part in parts]
    assert set(kinds) == {"metadata", "messages/metadata", "messages/partial", "messages/complete", "end"}
    partial = [part.data[0] for part in parts if part.event == "messages/partial"]
    texts = [message["content"] for message in partial if message["content"]]
    assert texts == ["one ", "one two ", "one two three"] or texts[-1] == "one two three"
    assert partial[-1]["type"] == "ai"
    tool = next(part.data[0] for part in parts if part.event == "messages/complete")
    assert tool["type"] == "tool"
    assert rest[-2].data == parts[-2].data


async def test_a_thread_is_followed_through_its_runs(
    client: LangGraphClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("one", text("first answer").held(gate))
    model.on("two", text("second answer"))
    await client.threads.create(thread_id="t1")
    run = await client.runs.create("t1", LEAD, input=ask("one"))
    seen: list[Any] = []

    async def follow(last_event_id: str | None = None) -> None:
        async for part in await client.threads.join_stream("t1", last_event_id=last_event_id):
            seen.append(part)
            if sum(item.event == "end" for item in seen) == 2:
                return

    following = asyncio.create_task(follow())
    await until(lambda: seen)  # what is held back is said once somebody listens
    gate.set()
    await client.runs.join("t1", run["run_id"])
    await client.runs.wait("t1", LEAD, input=ask("two"))
    await asyncio.wait_for(following, 60)

    runs = [part.data["run_id"] for part in seen if part.event == "metadata"]
    whole, cut = list(seen), next(index for index, part in enumerate(seen) if part.event == "end")
    assert len(set(runs)) == 2
    seen.clear()
    seen.append(whole[cut])
    await asyncio.wait_for(follow(whole[cut].id), 60)
    assert [part.id for part in seen[1:]] == [part.id for part in whole[cut + 1 :]]


async def test_a_thread_is_followed_from_the_first_of_all_that_wait(
    client: LangGraphClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("go", text("x").held(gate))
    wish: Any = {"assistant_id": LEAD, "input": ask("go"), "multitask_strategy": "enqueue"}
    runs = [await client.runs.create("t1", if_not_exists="create", **wish) for _ in range(103)]

    async for part in await client.threads.join_stream("t1"):
        first = part
        break
    await client.runs.cancel_many(status="all")

    assert (first.event, first.data["run_id"]) == ("metadata", runs[0]["run_id"])


async def test_interrupts_before_and_after_nodes_and_commands_that_go_on(
    client: LangGraphClient, model: ScriptedModel
) -> None:
    model.on("look", call("ls", description="x", path="/mnt/user-data/workspace"), text("seen"))
    thread = (await client.threads.create())["thread_id"]

    await client.runs.wait(thread, LEAD, input=ask("look"), interrupt_before=["tools"])
    before = await client.threads.get_state(thread)
    await client.runs.wait(thread, LEAD, input=None, interrupt_after=["tools"])
    after = await client.threads.get_state(thread)
    done: Any = await client.runs.wait(
        thread, LEAD, command={"update": {"title": "By command"}, "goto": "model"}
    )

    assert before["next"] == ["tools"]
    assert [message["type"] for message in after["values"]["messages"]] == ["human", "ai", "tool"]
    assert after["next"] == ["model"]
    assert done["messages"][-1]["content"] == "seen"
    assert done["title"] == "By command"


async def test_many_runs_are_cancelled_through_the_client(
    client: LangGraphClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("go", text("x " * 100).held(gate))
    run = await client.runs.create("t1", LEAD, input=ask("go"), if_not_exists="create")
    queued = await client.runs.create("t1", LEAD, input=ask("go"), multitask_strategy="enqueue")

    await client.runs.cancel_many(status="all")
    for each in (run, queued):
        await client.runs.join("t1", each["run_id"])

    assert {item["status"] for item in await client.runs.list("t1")} == {"interrupted"}
    assert queued["status"] == "pending"


async def test_the_store_keeps_finds_and_forgets(client: LangGraphClient) -> None:
    await client.store.put_item(["docs", "deer"], "a", {"size": 1, "kind": "red"})
    await client.store.put_item(["docs", "elk"], "b", {"size": 2}, ttl=60)
    await client.store.put_item(["other"], "c", {"size": 3}, index=False)

    item = await client.store.get_item(["docs", "deer"], "a")
    found = await client.store.search_items(["docs"], filter={"size": {"$gt": 1}})
    namespaces = await client.store.list_namespaces(prefix=["docs"])
    shallow = await client.store.list_namespaces(max_depth=1)

    assert (item["value"], item["namespace"]) == ({"size": 1, "kind": "red"}, ["docs", "deer"])
    assert [hit["key"] for hit in found["items"]] == ["b"]
    assert sorted(namespaces["namespaces"]) == [["docs", "deer"], ["docs", "elk"]]
    assert sorted(shallow["namespaces"]) == [["docs"], ["other"]]
    await client.store.delete_item(["docs", "deer"], "a")
    assert await client.store.get_item(["docs", "deer"], "a") is None
    assert len((await client.store.search_items([]))["items"]) == 2


async def test_the_server_says_what_it_is(gateway: Gateway) -> None:
    async with gateway.client() as api:
        info = (await api.get("/info")).json()
        ok = (await api.get("/ok")).json()

    assert ok == {"ok": True}
    assert info["flags"]["assistants"] is True
