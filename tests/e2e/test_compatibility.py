"""Where DeerFlow 2 and LangGraph's server differ, the setting `compatibility` chooses: each row both ways."""

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, parse_sse, running_gateway
from support.model_server import ScriptedModel, call, text
from support.shared import fresh_model
from support.waiting import until

from deerflow.domain import new_id

TABLE = Path(__file__).parents[2] / "docs/reference/compatibility.md"
ASK = {"rules": [{"tool": "ls", "action": "ask"}]}
model = fresh_model


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[dict[str, Gateway]]:
    homes = [tmp_path_factory.mktemp(name) for name in ("deerflow", "langgraph")]
    with (
        running_gateway(homes[0], server.base_url, guardrails=ASK) as deerflow,
        running_gateway(homes[1], server.base_url, guardrails=ASK, compatibility="langgraph") as langgraph,
    ):
        yield {"deerflow": deerflow, "langgraph": langgraph}


@pytest.fixture(params=["deerflow", "langgraph"])
def contract(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def gateway(gateways: dict[str, Gateway], contract: str) -> Gateway:
    return gateways[contract]


def ask(question: str, **more: Any) -> dict[str, Any]:
    return {"input": {"messages": [{"role": "user", "content": question}]}, **more}


@pytest.fixture
async def busy(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> AsyncIterator[str]:
    """Return the path of a run that is under way in the thread."""
    model.on("slow", text("a late answer").held(gate))
    model.on("next", text("the next answer"))
    run = (await api.post(f"/threads/{thread}/runs", json=ask("slow"))).json()
    await model.until(lambda scripted: bool(scripted.requests))
    yield f"/threads/{thread}/runs/{run['run_id']}"
    gate.set()


async def test_a_run_on_a_busy_thread(
    api: httpx.AsyncClient, contract: str, thread: str, busy: str, gate: threading.Event
) -> None:
    second = await api.post(f"/threads/{thread}/runs", json=ask("next"))
    chosen = await api.post(f"/threads/{thread}/runs", json=ask("next", multitask_strategy="reject"))
    gate.set()

    assert chosen.status_code == 409
    if contract == "deerflow":
        assert second.status_code == 409
    else:
        ended = await api.get(f"/threads/{thread}/runs/{second.json()['run_id']}/join")
        assert ended.json()["messages"][-1]["content"] == "the next answer"


async def test_a_client_that_leaves(
    api: httpx.AsyncClient, model: ScriptedModel, contract: str, thread: str, gate: threading.Event
) -> None:
    model.on("slow", text("a late answer").held(gate))
    async with api.stream("POST", f"/threads/{thread}/runs/stream", json=ask("slow")) as stream:
        path = stream.headers["content-location"].removeprefix("/api")
        await model.until(lambda scripted: bool(scripted.requests))

    async def has_ended() -> Any:
        run = (await api.get(path)).json()
        return run["status"] not in ("pending", "running") and run["status"]

    if contract == "langgraph":
        assert not await has_ended()
        gate.set()
    assert await until(has_ended) == {"deerflow": "interrupted", "langgraph": "success"}[contract]


async def test_a_run_on_a_thread_that_does_not_exist(
    api: httpx.AsyncClient, model: ScriptedModel, contract: str
) -> None:
    model.on("hi", text("hello"))

    answers = [
        await api.post(f"/threads/{new_id()}/runs/wait", json=ask("hi", **more))
        for more in ({}, {"if_not_exists": "create"}, {"if_not_exists": "reject"})
    ]

    plain = {"deerflow": 200, "langgraph": 404}[contract]
    assert [answer.status_code for answer in answers] == [plain, 200, 404]


async def test_the_thread_of_a_stateless_run(
    api: httpx.AsyncClient, model: ScriptedModel, contract: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.runtime.threads._LINGER_SECONDS", 0)
    model.on("hi", text("hello"))

    threads = [
        (await api.post("/runs", json=ask("hi", **more))).json()["thread_id"]
        for more in ({}, {"on_completion": "delete"}, {"on_completion": "keep"})
    ]

    async def kept() -> list[bool]:
        return [(await api.get(f"/threads/{thread}")).status_code == 200 for thread in threads]

    expected = [contract == "deerflow", False, True]

    async def is_so() -> bool:
        return await kept() == expected

    await until(is_so)
    for thread in threads[2:]:
        runs = (await api.get(f"/threads/{thread}/runs")).json()
        assert [run["status"] for run in runs] == ["success"]


async def test_the_past_of_a_thread_that_does_not_exist(api: httpx.AsyncClient, contract: str) -> None:
    missing = f"/threads/{new_id()}"

    answers = [await api.post(f"{missing}/history", json={}), await api.get(f"{missing}/messages/page")]

    expected = {"deerflow": 200, "langgraph": 404}[contract]
    assert [answer.status_code for answer in answers] == [expected] * 2
    if contract == "deerflow":
        assert (answers[0].json(), answers[1].json()["data"]) == ([], [])


async def test_deleting_a_busy_thread(api: httpx.AsyncClient, contract: str, thread: str, busy: str) -> None:
    await api.post(f"/threads/{thread}/runs", json=ask("next", multitask_strategy="enqueue"))

    answer = await api.delete(f"/threads/{thread}")

    left = await api.get(busy)
    expected = {"deerflow": (409, 200), "langgraph": (200, 404)}[contract]
    assert (answer.status_code, left.status_code) == expected


async def test_the_list_that_deerflows_frontend_polls(
    api: httpx.AsyncClient, model: ScriptedModel, contract: str, thread: str
) -> None:
    model.on("hi", text("hello"))
    await api.post(f"/threads/{thread}/runs/wait", json=ask("hi"))
    body = {"ids": [thread], "select": ["thread_id", "updated_at", "values", "metadata"]}

    (polled,) = (await api.post("/threads/search", json=body)).json()
    (plain,) = (await api.post("/threads/search", json={**body, "select": ["values"]})).json()

    assert ("messages" in polled["values"]) == (contract == "langgraph")
    assert polled["values"]["title"] == plain["values"]["title"]
    assert plain["values"]["messages"]


async def test_a_call_that_waits(
    api: httpx.AsyncClient, model: ScriptedModel, contract: str, thread: str
) -> None:
    model.on("look", call("ls", description="Look", path="/mnt/user-data"))
    stream = await api.post(f"/threads/{thread}/runs/stream", json=ask("look", stream_mode=["values"]))
    state = (await api.get(f"/threads/{thread}/state")).json()
    (newest,) = (await api.post(f"/threads/{thread}/history", json={"limit": 1})).json()

    last = [data for kind, data, _ in parse_sse(stream.text) if kind == "values"][-1]
    shown = [values["messages"][-1].get("name") for values in (last, state["values"], newest["values"])]
    assert shown == ["ask_clarification" if contract == "deerflow" else None] * 3
    assert state["interrupts"]


def test_each_row_of_the_table_has_its_test() -> None:
    _, *rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    tests = [name for name in globals() if name.startswith("test_")]
    assert len(rows) == len(tests) - 1
