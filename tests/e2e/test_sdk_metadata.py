"""Threads and runs know what they are, as the public `langgraph_sdk` client asks for it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, status, text
from support.shared import fresh_model, shared_gateway

from deerflow.domain import new_id

LEAD = "lead_agent"
TOTAL, NEXT = "X-Pagination-Total", "X-Pagination-Next"
PAGES = [(2, "3", "2"), (1, "3", None), (0, "3", None)]
"""What pages of two say of three rows, at 0, 2 and 5: how many, the total, and the next."""

gateway = shared_gateway(scheduler={"enabled": True})
model = fresh_model


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=gateway.api, api_key=None) as opened:
        yield opened


async def test_the_metadata_and_tags_of_a_run_reach_its_checkpoints_and_messages(
    client: LangGraphClient, model: ScriptedModel, thread: str
) -> None:
    model.on("hi", text("hello"))
    config: Any = {"metadata": {"ticket": "T-1", "level": 1}, "tags": ["red"]}
    metadata = {"level": 2, "nested": {"deep": [1]}, "run_id": "forged", "thread_id": "forged"}

    run = await client.runs.create(thread, LEAD, input=ask("hi"), metadata=metadata, config=config)
    await client.runs.join(thread, run["run_id"])
    await client.runs.wait(thread, LEAD, input=ask("hi"))
    stream = client.runs.join_stream(thread, run["run_id"], stream_mode="messages-tuple")
    noted = [part.data[1] async for part in stream if part.event == "messages"]
    history: Any = await client.threads.get_history(thread, limit=100, metadata={"ticket": "T-1"})
    by_tags = await client.threads.get_history(thread, limit=100, metadata={"tags": ["red"]})
    other = await client.threads.get_history(thread, metadata={"ticket": "T-2"})

    expected = {"ticket": "T-1", "level": 2, "nested": {"deep": [1]}, "tags": ["red"]}
    assert noted
    for kept in [*noted, *(state["metadata"] for state in history)]:
        assert {key: kept.get(key) for key in expected} == expected
        assert kept["run_id"] == run["run_id"]
    assert {part["thread_id"] for part in noted} == {thread}
    assert (len(history), other) == (len(by_tags), [])
    assert (await client.runs.get(thread, run["run_id"]))["metadata"]["ticket"] == "T-1"


async def test_threads_are_found_and_deleted_by_the_assistant_of_their_runs(
    client: LangGraphClient, model: ScriptedModel, api: httpx.AsyncClient
) -> None:
    model.on("hi", text("hello"))
    mine = (await client.assistants.create(LEAD, name="Mine"))["assistant_id"]
    first, second, other = (new_id() for _ in range(3))
    for thread, assistant in ((first, mine), (second, mine), (other, LEAD)):
        await client.runs.wait(thread, assistant, input=ask("hi"), if_not_exists="create")

    found = await client.threads.search(metadata={"assistant_id": mine})
    await client.assistants.delete(mine, delete_threads=True)

    assert {thread["thread_id"] for thread in found} == {first, second}
    assert found[0]["metadata"] == {"graph_id": LEAD, "assistant_id": mine}
    assert [(await api.get(f"/threads/{thread}")).status_code for thread in (first, second)] == [404, 404]
    assert (await client.threads.get(other))["metadata"]["assistant_id"] == LEAD


async def test_selected_values_are_the_whole_state_and_a_title_alone_costs_no_state(
    client: LangGraphClient, model: ScriptedModel, thread: str
) -> None:
    model.on("hi", text("hello"))
    await client.runs.wait(thread, LEAD, input=ask("hi"), metadata={"a": 1})
    await client.threads.update(thread, metadata={"mark": thread})
    mine = {"mark": thread}

    (values,) = await client.threads.search(metadata=mine, select=["values"])
    title: Any = await client.threads.search(metadata=mine, select=["thread_id", "values.title"])  # type: ignore[list-item]

    assert [message["content"] for message in values["values"]["messages"]] == ["hi", "hello"]
    assert title == [{"thread_id": thread, "values": {"title": values["values"]["title"]}}]


async def test_a_failed_run_shows_in_its_thread_and_stream(
    client: LangGraphClient, model: ScriptedModel, thread: str
) -> None:
    model.on("bad", status(400))
    model.on("hi", text("hello"))

    parts = [part async for part in client.runs.stream(thread, LEAD, input=ask("bad"))]
    failed: Any = await client.threads.get(thread)
    listed: Any = await client.threads.search(ids=[thread], select=["status", "error"])
    await client.runs.wait(thread, LEAD, input=ask("hi"))
    mended: Any = await client.threads.get(thread)

    (error,) = [part.data for part in parts if part.event == "error"]
    assert (error["error"], error["name"]) == ("ModelError", "ModelError")
    assert (failed["status"], failed["error"]) == ("error", error["message"])
    assert listed == [{"status": "error", "error": error["message"]}]
    assert (mended["status"], mended["error"]) == ("idle", None)


async def test_lists_say_how_much_there_is(api: httpx.AsyncClient, thread: str) -> None:
    group = {"group": thread}
    for number in range(3):
        await api.post("/threads", json={"thread_id": new_id(), "metadata": group})
        await api.post("/assistants", json={"name": f"a{number}", "metadata": group})
        cron = {"schedule": "0 0 1 1 *", "input": ask("hi"), "metadata": group}
        await api.post("/runs/crons", json=cron)

    for path in ("/threads/search", "/assistants/search", "/runs/crons/search"):
        pages = [
            await api.post(path, json={"metadata": group, "limit": 2, "offset": offset})
            for offset in (0, 2, 5)
        ]
        shown = [_page(page, page.json()) for page in pages]
        assert shown == PAGES, path


async def test_runs_and_items_say_how_many_there_are(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.on("hi", text("hello"))
    model.on("bad", status(400))
    for question in ("hi", "hi", "bad", "hi"):
        await api.post(f"/threads/{thread}/runs/wait", json={"input": ask(question)})
    for number in range(4):
        item = {"namespace": [thread, str(number % 2)], "key": str(number), "value": {"odd": number == 3}}
        await api.put("/store/items", json=item)
    await api.put("/store/items", json={"namespace": [f"{thread}x"], "key": "other", "value": {}})

    runs = f"/threads/{thread}/runs"
    wish = {"namespace_prefix": [thread], "filter": {"odd": False}, "limit": 2}
    by_status = [
        await api.get(runs, params={"status": "success", "limit": 2, "offset": at}) for at in (0, 2, 5)
    ]
    filtered = [await api.post("/store/items/search", json={**wish, "offset": at}) for at in (0, 2, 5)]
    whole = await api.post("/store/items/search", json={**wish, "filter": None})
    exact = await api.get(runs, params={"limit": 4})

    assert [_page(each, each.json()) for each in by_status] == PAGES
    assert [_page(each, each.json()["items"]) for each in filtered] == PAGES
    assert _page(whole, whole.json()["items"]) == (2, "4", "2")
    assert _page(exact, exact.json()) == (4, "4", None)


def _page(answer: httpx.Response, rows: list[Any]) -> tuple[int, str, str | None]:
    return len(rows), answer.headers[TOTAL], answer.headers.get(NEXT)


async def test_who_prefers_no_answer_to_a_change_gets_none(
    client: LangGraphClient, api: httpx.AsyncClient, thread: str
) -> None:
    nothing = await client.threads.update(thread, metadata={"a": 1}, return_minimal=True)
    assistant = (await api.post("/assistants", json={"name": "x"})).json()["assistant_id"]
    body = {"schedule": "0 0 1 1 *", "input": ask("hi"), "metadata": {"a": 1, "b": 1}}
    cron = (await api.post("/runs/crons", json=body)).json()["cron_id"]
    minimal = {"Prefer": "respond-async, return=minimal"}

    answers = [
        await api.patch(path, json={"metadata": {"b": 2}}, headers=minimal)
        for path in (f"/threads/{thread}", f"/assistants/{assistant}", f"/runs/crons/{cron}")
    ]

    assert nothing is None
    assert [(answer.status_code, answer.content) for answer in answers] == [(204, b"")] * 3
    assert (await client.threads.get(thread))["metadata"] == {"a": 1, "b": 2}
    merged = (await api.get(f"/runs/crons/{cron}")).json()
    assert merged["metadata"] == merged["payload"]["metadata"] == {"a": 1, "b": 2}


async def test_who_joins_gets_the_modes_that_were_asked_for(
    client: LangGraphClient, model: ScriptedModel, api: httpx.AsyncClient, thread: str
) -> None:
    model.on("hi", text("hello"))
    modes: Any = ["values", "updates"]

    async with api.stream("GET", f"/threads/{thread}/stream") as following:
        run = await client.runs.create(thread, LEAD, input=ask("hi"), stream_mode=modes)
        of_thread = []
        async for line in following.aiter_lines():
            of_thread += [line.removeprefix("event: ")] if line.startswith("event: ") else []
            if line == "event: end":
                break
    path = f"/threads/{thread}/runs/{run['run_id']}/join?stream_mode=updates"
    joined = await api.get(path, headers={"Accept": "text/event-stream"})
    streamed = [
        part.event async for part in client.runs.join_stream(thread, run["run_id"], stream_mode="custom")
    ]

    assert set(of_thread) == {"metadata", "values", "updates", "end"}
    kinds = {line.removeprefix("event: ") for line in joined.text.splitlines() if line.startswith("event: ")}
    assert kinds == {"metadata", "updates", "end"}
    assert streamed == ["metadata", "end"]


async def test_a_pruned_thread_keeps_its_latest_state_only_and_goes_on_from_it(
    client: LangGraphClient, model: ScriptedModel, api: httpx.AsyncClient, thread: str
) -> None:
    look = call("ls", description="x", path="/mnt/user-data/workspace")
    model.on("look", look, text("seen"))
    model.on("look inside", look, text("inside"))
    job = call("task", description="Look", prompt="look inside", subagent_type="general-purpose")
    model.on("delegate", job, text("done"))
    model.on("again", text("still here"))
    await client.runs.wait(thread, LEAD, input=ask("delegate"), context={"subagent_enabled": True})
    await client.runs.wait(thread, LEAD, input=ask("look"), interrupt_before=["tools"])
    before: Any = await client.threads.get_state(thread)

    pruned = await client.threads.prune([thread], strategy="keep_latest")
    again = await client.threads.prune([thread], strategy="keep_latest")
    history: Any = await client.threads.get_history(thread, limit=100)
    stored = (await api.get(f"/threads/{thread}/storage")).json()
    await client.runs.wait(thread, LEAD, input=None)
    after: Any = await client.runs.wait(thread, LEAD, input=ask("again"))

    assert (pruned, again) == ({"pruned_count": 1}, {"pruned_count": 0})
    assert len(history) == 1
    assert stored["checkpoints"]["count"] == 2  # the lead agent's, and its sub-agent's
    assert history[0]["values"] == before["values"]
    assert (history[0]["checkpoint_id"], history[0]["next"]) == (before["checkpoint_id"], before["next"])
    told = [message["content"] for message in after["messages"] if message["type"] in ("human", "ai")]
    assert [words for words in told if words] == ["delegate", "done", "look", "seen", "again", "still here"]
