"""Workers that are told to stop while their database is gone: they end soon, and say what they left."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import WorkerProcess, running_gateway
from support.model_server import ScriptedModel, text
from support.postgres import PostgresServer
from support.waiting import logged

SOON_SECONDS = 30
"""Much less than the patience with a database that is away, and enough for a busy machine."""
PATIENCE_SECONDS = 15
"""How long a worker waits for the database; no statement of a test takes that long."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Return a server of its own, since the test ends it."""
    with PostgresServer.running() as server:
        yield server


async def test_a_worker_ends_soon_though_its_database_is_gone(
    tmp_path: Path, model: ScriptedModel, server: PostgresServer
) -> None:
    gate = threading.Event()
    model.on("wait", text("never stored").held(gate))
    database = server.settings().model_dump(include={"backend", "postgres_url", "postgres_schema"})
    sections: dict[str, Any] = {
        "database": database,
        "run_ownership": {"lease_seconds": 5, "grace_seconds": 1},
    }
    worker = WorkerProcess(tmp_path, model.base_url, concurrency=2, **sections).start()
    try:
        with running_gateway(tmp_path, model.base_url, capacity=0, **sections) as gateway:
            async with gateway.client() as api:
                run = await _start(api, "wait")
                await model.until(lambda model: len(model.requests) >= 1)
                await asyncio.to_thread(server.kill)

                before = time.monotonic()
                worker.tell(signal.SIGTERM)
                code = await asyncio.to_thread(worker.wait, 60)
                took = time.monotonic() - before

                gate.set()
                await asyncio.to_thread(server.restart)
                second = await asyncio.to_thread(worker.start)
                await api.get(f"/threads/t/runs/{run['run_id']}/join")
                after = (await api.get(f"/threads/t/runs/{run['run_id']}")).json()
                assert second.stop() == 0
    finally:
        gate.set()
        worker.kill()

    assert code == 1
    assert took < SOON_SECONDS
    assert "1 runs could not be handed over" in worker.log
    assert after["status"] == "success"
    assert after["attempt"] >= 2


async def test_a_run_survives_an_outage_that_is_longer_than_anybodys_patience(
    tmp_path: Path, model: ScriptedModel, server: PostgresServer
) -> None:
    gate = threading.Event()
    model.on("wait", text("stored at last").held(gate))
    database = server.settings().model_dump(include={"backend", "postgres_url", "postgres_schema"})
    sections: dict[str, Any] = {"database": {**database, "command_timeout": PATIENCE_SECONDS}}
    worker = WorkerProcess(tmp_path, model.base_url, concurrency=2, **sections).start()
    try:
        with running_gateway(tmp_path, model.base_url, capacity=0, **sections) as gateway:
            async with gateway.client() as api:
                run = await _start(api, "wait")
                await model.until(lambda model: len(model.requests) >= 1)
                await asyncio.to_thread(server.kill)
                gate.set()
                await logged(worker, "its database was away")

                await asyncio.to_thread(server.restart)
                await api.get(f"/threads/t/runs/{run['run_id']}/join")
                after = (await api.get(f"/threads/t/runs/{run['run_id']}")).json()
    finally:
        gate.set()
        worker.kill()

    assert (after["status"], after["error"]) == ("success", None)
    assert after["attempt"] >= 2


async def _start(api: httpx.AsyncClient, question: str) -> dict[str, Any]:
    message = {"role": "user", "content": question}
    answer = await api.post("/threads/t/runs", json={"input": {"messages": [message]}})
    run: dict[str, Any] = answer.json()
    return run
