"""Requests at the edges of the contract, on each database and through two gateways at once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, parse_sse, running_gateway
from support.model_server import ScriptedModel, call, text
from support.postgres import PostgresServer

Apis = tuple[httpx.AsyncClient, httpx.AsyncClient]


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedModel]:
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def sections(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of a database of this module's own."""
    if request.param == "sqlite":
        return {}
    server: PostgresServer = request.getfixturevalue("postgres")
    named = {"backend", "postgres_url", "postgres_schema"}
    return {"database": server.settings().model_dump(include=named)}


@pytest.fixture(scope="module")
def gateways(
    sections: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, scripted: ScriptedModel
) -> Iterator[list[Gateway]]:
    home = tmp_path_factory.mktemp("wishes")
    with ExitStack() as stack:
        yield [stack.enter_context(running_gateway(home, scripted.base_url, **sections)) for _ in range(2)]


@pytest.fixture
async def apis(gateways: list[Gateway], scripted: ScriptedModel) -> AsyncIterator[Apis]:
    scripted.reset()
    async with gateways[0].client() as one, gateways[1].client() as two:
        yield one, two


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


async def test_of_40_requests_to_create_a_thread_one_creates_it_and_the_others_get_it(apis: Apis) -> None:
    async def create(index: int, if_exists: str) -> int:
        body = {"thread_id": "new", "if_exists": if_exists, "metadata": {"n": index}}
        return (await apis[index % 2].post("/threads", json=body)).status_code

    raised = await asyncio.gather(*(create(index, "raise") for index in range(40)))
    accepted = await asyncio.gather(*(create(index, "do_nothing") for index in range(10)))

    assert sorted(raised) == [200] + [409] * 39
    assert accepted == [200] * 10


async def test_supersteps_fill_a_new_thread_only(apis: Apis) -> None:
    update = {"values": ask("from elsewhere"), "as_node": "__start__"}
    body = {"thread_id": "steps", "supersteps": [{"updates": [update]}]}

    first, second = [await api.post("/threads", json=body) for api in apis]
    third = await apis[0].post("/threads", json={**body, "if_exists": "raise"})

    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 409)
    values = (await apis[1].get("/threads/steps/state")).json()["values"]
    assert [message["content"] for message in values["messages"]] == ["from elsewhere"]


async def test_of_50_submits_to_two_gateways_a_thread_admits_one(
    apis: Apis, scripted: ScriptedModel, gate: threading.Event
) -> None:
    scripted.on("only one", text("done").held(gate))

    answers = await asyncio.gather(
        *(apis[index % 2].post("/threads/busy/runs", json={"input": ask("only one")}) for index in range(50))
    )
    gate.set()
    runs = (await apis[0].get("/threads/busy/runs")).json()

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 49
    assert len(runs) == 1


async def test_a_request_with_a_key_outlives_its_connection_and_is_answered_again_elsewhere(
    apis: Apis, scripted: ScriptedModel, gate: threading.Event
) -> None:
    scripted.on("again", text("said once").held(gate))
    body, headers = {"input": ask("again")}, {"Idempotency-Key": "again-1"}
    async with apis[0].stream("POST", "/threads/keyed/runs/stream", json=body, headers=headers) as response:
        await anext(response.aiter_text())
    await scripted.until(lambda model: any(request.asked == "again" for request in model.requests))

    gate.set()
    second = await apis[1].post("/threads/keyed/runs/stream", json=body, headers=headers)
    third = await apis[0].post("/threads/keyed/runs/wait", json=body, headers=headers)

    runs = (await apis[0].get("/threads/keyed/runs")).json()
    assert [run["status"] for run in runs] == ["success"]
    assert parse_sse(second.text)[-1][0] == "end"
    assert third.json()["messages"][-1]["content"] == "said once"
    assert sum(request.asked == "again" for request in scripted.requests) == 1


async def test_threads_are_found_by_what_is_inside_their_metadata(apis: Apis) -> None:
    for name, metadata in (("inner", {"deal": {"id": 7, "tags": ["a", "b"]}}), ("other", {"deal": "7"})):
        await apis[0].post("/threads", json={"thread_id": name, "metadata": metadata})

    async def found(metadata: dict[str, Any]) -> list[str]:
        body = {"metadata": metadata, "select": ["thread_id"], "sort_by": "state_updated_at"}
        return [thread["thread_id"] for thread in (await apis[1].post("/threads/search", json=body)).json()]

    assert await found({"deal": {"id": 7}}) == ["inner"]
    assert await found({"deal": {"tags": ["a", "b"]}}) == ["inner"]
    assert await found({"deal": {"tags": ["a"]}}) == []
    assert await found({"deal": {"id": "7"}}) == []
    assert await found({"deal": "7"}) == ["other"]
    refused = await apis[0].post("/threads/search", json={"select": ["colour"]})
    assert refused.status_code == 422


async def test_a_reader_that_asks_for_an_unknown_mode_is_told_the_known_ones(
    apis: Apis, scripted: ScriptedModel
) -> None:
    scripted.on("short", text("yes"))
    await apis[0].post("/threads/modes/runs/wait", json={"input": ask("short")})
    run = (await apis[0].get("/threads/modes/runs")).json()[0]["run_id"]

    wrong = await apis[1].get(f"/threads/modes/runs/{run}/stream?stream_mode=colours")
    right = await apis[1].get(f"/threads/modes/runs/{run}/stream?stream_mode=values&stream_mode=updates")

    assert wrong.status_code == 400
    assert "messages-tuple" in wrong.json()["detail"]
    assert {event for event, *_ in parse_sse(right.text)} == {"metadata", "values", "updates", "end"}


async def test_commands_without_a_target_start_nothing_or_say_why(
    apis: Apis, scripted: ScriptedModel
) -> None:
    scripted.on("begin", text("begun"))
    await apis[0].post("/threads/commands/runs/wait", json={"input": ask("begin")})

    async def told(command: dict[str, Any]) -> httpx.Response:
        return await apis[1].post("/threads/commands/runs/wait", json={"command": command})

    refused = [
        await told(command) for command in ({"goto": 7}, {"update": {"title": 5}}, {"update": {"x": 1}})
    ]
    lost = await told({"goto": "nowhere"})
    nothing = await told({})
    renamed = await told({"update": [["title", "New"]]})

    assert [answer.status_code for answer in refused] == [400, 400, 400]
    assert lost.json()["status"] == "error"
    assert "'model'" in lost.json()["error"]
    assert [message["content"] for message in nothing.json()["messages"]] == ["begin", "begun"]
    assert renamed.json()["title"] == "New"
    assert len((await apis[0].get("/threads/commands/runs")).json()) == 4


async def test_sub_agents_are_graphs_below_the_root_for_readers_who_want_them(
    apis: Apis, scripted: ScriptedModel
) -> None:
    task = {"description": "part", "subagent_type": "general-purpose", "prompt": "do the part"}
    scripted.on("do the part", text("part is done"))
    scripted.on("delegate", call("task", **task), text("all done"))

    def body(**more: Any) -> dict[str, Any]:
        modes = ["values", "updates", "messages-tuple"]
        options = {"stream_mode": modes, "context": {"subagent_enabled": True}}
        return {"input": ask("delegate"), **options, **more}

    plain = parse_sse((await apis[0].post("/threads/plain/runs/stream", json=body())).text)
    wanted = await apis[0].post("/threads/deep/runs/stream", json=body(stream_subgraphs=True))
    run = (await apis[0].get("/threads/deep/runs")).json()[0]["run_id"]
    again = await apis[1].get(f"/threads/deep/runs/{run}/stream")

    below = [(event, data) for event, data, _ in parse_sse(wanted.text) if "|" in event]
    assert not any("|" in event for event, *_ in plain)
    assert {event.partition("|")[0] for event, _ in below} == {"values", "updates", "messages"}
    assert {event.partition("|")[2].partition(":")[0] for event, _ in below} == {"tools"}
    assert below[-1][1]["messages"][-1]["content"] == "part is done"
    assert again.text == wanted.text


async def test_a_run_that_takes_too_long_ends_as_such_and_its_thread_goes_on(
    sections: dict[str, Any], tmp_path: Path, scripted: ScriptedModel, gate: threading.Event
) -> None:
    scripted.reset()
    scripted.on("too long", text("never said").held(gate))
    scripted.on("short", text("in time"))
    for seconds in (1, 8, 40):  # longer where the machine is too slow for a short answer
        limits, place = {"runs": {"timeout_seconds": seconds}}, f"/threads/limit-{seconds}"
        with running_gateway(tmp_path, scripted.base_url, **sections, **limits) as gateway:
            async with gateway.client() as api:
                body = {"input": ask("too long"), "stream_mode": ["updates"]}
                streamed = parse_sse((await api.post(f"{place}/runs/stream", json=body)).text)
                run = (await api.get(f"{place}/runs")).json()[0]
                status = (await api.get(place)).json()["status"]
                after = (await api.post(f"{place}/runs/wait", json={"input": ask("short")})).json()
                is_slow = (await api.get(f"{place}/runs")).json()[0]["status"] == "timeout"
        if not is_slow:
            break

    assert (run["status"], run["stop_reason"], status) == ("timeout", "RunTimeout", "error")
    assert [event for event, *_ in streamed][-2:] == ["error", "end"]
    assert "runs.timeout_seconds" in streamed[-2][1]["message"]
    assert [message["type"] for message in after["messages"]][-2:] == ["human", "ai"]
