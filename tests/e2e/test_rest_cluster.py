"""Two gateways on one PostgreSQL: crons fire once, forks and pages are the same from both, ends are told."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, call, text
from support.postgres import PostgresServer
from support.waiting import until

NOTE = "/mnt/user-data/workspace/note.txt"


@pytest.fixture
def gateways(tmp_path: Path, model: ScriptedModel, postgres: PostgresServer) -> Iterator[list[Gateway]]:
    database = postgres.settings().model_dump(include={"backend", "postgres_url", "postgres_schema"})
    runs = {"webhook_allow_cidrs": ["127.0.0.0/8", "::1/128"]}
    with ExitStack() as stack:
        starting = [running_gateway(tmp_path, model.base_url, database=database, runs=runs) for _ in range(2)]
        yield [stack.enter_context(gateway) for gateway in starting]


@pytest.fixture
async def apis(gateways: list[Gateway]) -> AsyncIterator[list[httpx.AsyncClient]]:
    async with gateways[0].client() as first, gateways[1].client() as second:
        yield [first, second]


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


def on_loop(gateway: Gateway, work: Any) -> Any:
    assert gateway.loop is not None
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, gateway.loop))


async def test_a_tick_is_one_run_however_many_gateways_look(
    gateways: list[Gateway], apis: list[httpx.AsyncClient], model: ScriptedModel
) -> None:
    model.on("tick", text("tock"))
    await apis[0].post("/threads", json={"thread_id": "t1"})

    body = {"schedule": "* * * * * *", "input": ask("tick"), "multitask_strategy": "enqueue"}
    cron = (await apis[0].post("/threads/t1/runs/crons", json=body)).json()

    async def runs_there() -> bool:
        return len((await apis[1].get("/threads/t1/runs")).json()) >= 3

    await until(runs_there)  # a run that starts by itself has no event to wait for
    deleted = await apis[1].delete(f"/runs/crons/{cron['cron_id']}")

    deerflow = gateways[1].deerflow
    assert deerflow is not None
    runs = await on_loop(gateways[1], deerflow.runs.of_thread("t1"))
    keys = [run.request.idempotency_key for run in runs]
    assert deleted.status_code == 204
    assert len(keys) >= 3
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(f"cron:{cron['cron_id']}:") for key in keys)
    assert all(not run.request.is_interactive for run in runs)


async def test_a_thread_is_forked_read_and_regenerated_through_either_gateway(
    apis: list[httpx.AsyncClient], model: ScriptedModel, gateways: list[Gateway]
) -> None:
    one, two = apis
    write = [call("write_file", description="w", path=NOTE, content=word) for word in ("first", "second")]
    model.will_say(write[0], text("one"), write[1], text("two"), text("dos"))
    first = (await one.post("/threads/t1/runs/wait", json={"input": ask("first")})).json()["messages"][-1]
    last = (await two.post("/threads/t1/runs/wait", json={"input": ask("second")})).json()["messages"][-1]

    fork = (await two.post("/threads/t1/branches", json={"message_id": first["id"]})).json()
    prepared = (await one.post("/threads/t1/runs/regenerate/prepare", json={"message_id": last["id"]})).json()
    again = {key: prepared[key] for key in ("input", "checkpoint", "metadata")}
    values = (await two.post("/threads/t1/runs/wait", json=again)).json()
    pages = [(await api.get("/threads/t1/messages/page")).json() for api in apis]
    forked = (await one.get(f"/threads/{fork['thread_id']}/messages/page")).json()

    assert fork["workspace_clone_mode"] == "as_of_message"
    files = gateways[0].home / ".deer-flow/users/default/threads" / fork["thread_id"] / "user-data/workspace"
    assert (files / "note.txt").read_text() == "first"
    assert values["messages"][-1]["content"] == "dos"
    assert pages[0] == pages[1]
    shown = [row["content"]["content"] for row in pages[0]["data"] if row["content"]["type"] != "tool"]
    assert shown == ["first", "", "one", "second", "dos"]
    assert [row["content"]["id"] for row in forked["data"]] == [
        row["content"]["id"] for row in pages[0]["data"][:4]
    ]


async def test_a_gateway_tells_of_an_end_for_one_that_is_gone(
    gateways: list[Gateway],
    apis: list[httpx.AsyncClient],
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deerflow.runtime.webhooks._ORPHANED_SECONDS", 0)
    monkeypatch.setattr("deerflow.runtime.webhooks._IDLE_SECONDS", 0.1)
    model.on("go", text("there"))
    told: asyncio.Queue[str] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        await told.put((await request.json())["run_id"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    run = (await apis[0].post("/threads/t1/runs", json={"input": ask("go")})).json()["run_id"]
    await apis[0].get(f"/threads/t1/runs/{run}/join")
    deerflow = gateways[1].deerflow
    assert deerflow is not None
    item = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/", "server": "one that died"}
    await on_loop(gateways[1], deerflow.storage.store.aput(("webhooks",), run, item))

    assert await asyncio.wait_for(told.get(), 60) == run
    await runner.cleanup()
