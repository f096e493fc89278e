"""Runs that start by themselves, through the public `langgraph_sdk` client and a real scheduler."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError
from support.gateway import Gateway, GatewayProcess, running_gateway
from support.model_server import ScriptedModel, text
from support.waiting import until

LEAD = "lead_agent"
EVERY_SECOND = "* * * * * *"
ASK: Any = {"messages": [{"role": "user", "content": "tick", "id": "same-every-time"}]}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=gateway.api, api_key=None) as opened:
        yield opened


async def runs_of(client: LangGraphClient, thread: str, least: int) -> list[Any]:
    async def look() -> list[Any] | None:
        runs = await client.runs.list(thread, status="success")
        return list(runs) if len(runs) >= least else None

    found: list[Any] = await until(look)  # a run that starts by itself has no event to wait for
    return found


async def status_of(work: Any) -> int:
    with pytest.raises((httpx.HTTPStatusError, APIStatusError)) as caught:
        await work
    return int(caught.value.response.status_code)


async def test_a_cron_starts_runs_in_its_thread_until_it_is_paused(
    client: LangGraphClient, model: ScriptedModel
) -> None:
    model.on("tick", text("tock"))
    await client.threads.create(thread_id="t1")

    cron: Any = await client.crons.create_for_thread(
        "t1",
        LEAD,
        schedule=EVERY_SECOND,
        input=ASK,
        metadata={"job": "x"},
        timezone=ZoneInfo("Europe/Berlin"),
    )
    runs = await runs_of(client, "t1", 2)
    paused = await client.crons.update(cron["cron_id"], enabled=False)
    async with asyncio.timeout(60):  # one that had begun may come yet; then none does for more than a tick
        count, before = len(await client.runs.list("t1")), 0
        while count != before:
            await asyncio.sleep(1.2)
            count, before = len(await client.runs.list("t1")), count

    assert cron["timezone"] == "Europe/Berlin"
    assert (cron["thread_id"], cron["schedule"], cron["enabled"]) == ("t1", EVERY_SECOND, True)
    assert runs[0]["metadata"] == {"job": "x", "cron_id": cron["cron_id"]}
    assert (paused["enabled"], paused["next_run_date"]) == (False, None)
    state: Any = await client.threads.get_state("t1")
    assert len(state["values"]["messages"]) >= 4  # each tick is a message of its own


async def test_each_run_of_a_cron_without_thread_has_one_of_its_own(
    client: LangGraphClient, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.runtime.threads._LINGER_SECONDS", 0.5)
    model.on("tick", text("tock"))

    async def threads_of(cron: dict[str, Any]) -> set[str]:
        found = set()
        for thread in await client.threads.search(limit=100):
            with suppress(httpx.HTTPStatusError, APIStatusError):  # it is gone by now
                runs = await client.runs.list(thread["thread_id"])
                found |= {run["thread_id"] for run in runs if run["metadata"]["cron_id"] == cron["cron_id"]}
        return found

    async def has_two() -> bool:
        return len(await threads_of(kept)) >= 2

    async def has_none() -> bool:
        return not await threads_of(gone)

    kept: Any = await client.crons.create(LEAD, schedule=EVERY_SECOND, input=ASK, on_run_completed="keep")
    await until(has_two)
    await client.crons.delete(kept["cron_id"])
    gone: Any = await client.crons.create(LEAD, schedule=EVERY_SECOND, input=ASK)
    await until(lambda: threads_of(gone))
    await client.crons.delete(gone["cron_id"])
    await until(has_none)

    assert (kept["on_run_completed"], gone["on_run_completed"]) == ("keep", "delete")
    assert await has_two()


async def test_crons_are_found_counted_changed_and_deleted(client: LangGraphClient) -> None:
    await client.threads.create(thread_id="t1")
    end = datetime.now(UTC) + timedelta(days=2)
    one: Any = await client.crons.create(
        LEAD, schedule="0 9 * * 1-5", input=ASK, metadata={"team": "deer"}, end_time=end, enabled=False
    )
    two: Any = await client.crons.create_for_thread("t1", LEAD, schedule="@daily", input=ASK)

    changed: Any = await client.crons.update(
        one["cron_id"], schedule="0 10 * * *", enabled=True, end_time=None, timezone="Asia/Tokyo"
    )
    found = await client.crons.search(metadata={"team": "deer"}, select=["cron_id", "schedule"])
    ordered = await client.crons.search(sort_by="created_at", sort_order="asc", limit=1, offset=1)

    assert (one["next_run_date"], one["end_time"]) == (None, end.isoformat())
    assert (changed["schedule"], changed["end_time"], changed["timezone"]) == (
        "0 10 * * *",
        None,
        "Asia/Tokyo",
    )
    assert datetime.fromisoformat(changed["next_run_date"]).hour == 1
    assert changed["payload"]["input"] == ASK
    assert found == [{"cron_id": one["cron_id"], "schedule": "0 10 * * *"}]
    assert [cron["cron_id"] for cron in ordered] == [two["cron_id"]]
    assert (await client.crons.count(), await client.crons.count(thread_id="t1")) == (2, 1)
    assert [cron["cron_id"] for cron in await client.crons.search(enabled=True, thread_id="t1")] == [
        two["cron_id"]
    ]
    await client.crons.delete(one["cron_id"])
    assert await status_of(client.crons.delete(one["cron_id"])) == 404
    assert await client.store.search_items([]) == {"items": []}


NEVER: list[tuple[dict[str, Any], int]] = [
    ({"schedule": "often"}, 400),
    ({"schedule": "0 0 31 2 *"}, 400),
    ({"schedule": "* * * * *", "timezone": "Nowhere/City"}, 400),
    ({"schedule": "* * * * *", "webhook": "file:///etc/passwd"}, 400),
    ({"schedule": "* * * * *", "assistant_id": "nobody"}, 404),
    ({"schedule": "* * * * *", "context": {"model_name": "nobody"}}, 404),
    ({"schedule": "* * * * *", "end_time": "tomorrow"}, 422),
    ({"schedule": "* * * * *", "on_run_completed": "burn"}, 422),
    ({"schedule": "* * * * *", "unknown": 1}, 422),
    ({"schedule": "*" * 2000}, 422),
    ({}, 422),
]


async def test_a_cron_that_could_never_run_is_refused(api: httpx.AsyncClient) -> None:
    answers = [await api.post("/runs/crons", json={"input": ASK, **body}) for body, _ in NEVER]
    nowhere = await api.post("/threads/nowhere/runs/crons", json={"schedule": "* * * * *", "input": ASK})

    assert [answer.status_code for answer in answers] == [status for _, status in NEVER]
    assert nowhere.status_code == 404
    assert (await api.post("/runs/crons/count", json={})).json() == 0


async def test_where_the_scheduler_is_off_crons_are_refused_with_the_reason(
    tmp_path: Path, model: ScriptedModel
) -> None:
    with running_gateway(tmp_path, model.base_url, scheduler={"enabled": False}) as gateway:
        async with gateway.client() as api:
            answer = await api.post("/runs/crons", json={"schedule": "* * * * *", "input": ASK})
            info = (await api.get("/info")).json()

    assert (answer.status_code, "scheduler.enabled" in answer.json()["detail"]) == (409, True)
    assert info["flags"]["crons"] is False


async def test_a_cron_outlives_its_server(tmp_path: Path, model: ScriptedModel) -> None:
    model.on("tick", text("tock"))
    server = GatewayProcess(tmp_path, model.base_url).start()
    try:
        async with get_client(url=server.api, api_key=None) as client:
            await client.threads.create(thread_id="t1")
            await client.crons.create_for_thread("t1", LEAD, schedule=EVERY_SECOND, input=ASK)
            before = len(await runs_of(client, "t1", 1))
        server.kill()
        server.start()

        async with get_client(url=server.api, api_key=None) as client:
            assert len(await runs_of(client, "t1", before + 2)) >= before + 2
    finally:
        server.stop()
