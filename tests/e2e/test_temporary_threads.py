"""Threads that are there for one run go with it, whatever becomes of the server that was to delete them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.gateway import environment, write_config

from deerflow.app import DeerFlow
from deerflow.config import SettingsSource
from deerflow.domain import RunRecord, RunRequest, RunStatus
from deerflow.storage import RunEnd, ThreadQuery


@pytest.fixture
async def deerflow(tmp_path: Path) -> AsyncIterator[DeerFlow]:
    source = SettingsSource(write_config(tmp_path, None), env=environment(tmp_path), cwd=tmp_path)
    async with DeerFlow.open(source) as opened:
        yield opened


async def admitted(deerflow: DeerFlow, thread: str) -> RunRecord:
    """Admit a run with which its thread is to go, as another server would."""
    request = RunRequest(thread, deletes_thread=True)
    await deerflow.threads.mark_temporary(f"run-of-{thread}", request)
    return await deerflow.storage.runs.create(f"run-of-{thread}", request, owner="another server")


async def left(deerflow: DeerFlow) -> tuple[list[str], list[str]]:
    """Return the threads that are there, and those that are still to go."""
    threads = await deerflow.storage.threads.search(ThreadQuery(None))
    noted = await deerflow.storage.store.asearch(("deerflow", "temporary-threads"))
    return [thread.id for thread in threads], [item.key for item in noted]


async def test_what_a_dead_server_left_behind_goes_later(deerflow: DeerFlow) -> None:
    ended = await admitted(deerflow, "ended")
    await admitted(deerflow, "running")
    await deerflow.threads.mark_temporary("never-admitted", RunRequest("refused", deletes_thread=True))
    await deerflow.storage.runs.settle(ended.id, attempt=1, end=RunEnd(RunStatus.SUCCESS))

    await deerflow.threads.delete_left_behind()
    at_once = await left(deerflow)
    await deerflow.threads.delete_left_behind(now=datetime.now(UTC) + timedelta(minutes=2))

    assert len(at_once[0]) == 2
    assert await left(deerflow) == (["running"], ["running"])


async def test_files_that_cannot_be_deleted_keep_no_other_thread(
    deerflow: DeerFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread in ("t1", "t2"):
        run = await admitted(deerflow, thread)
        await deerflow.storage.runs.settle(run.id, attempt=1, end=RunEnd(RunStatus.SUCCESS))

    def refuse(root: Path) -> None:
        raise PermissionError(f"{root} is somebody else's")

    monkeypatch.setattr("deerflow.runtime.threads.remove_tree", refuse)
    await deerflow.threads.delete_left_behind(now=datetime.now(UTC) + timedelta(minutes=2))

    assert await left(deerflow) == ([], [])


async def test_a_server_that_ends_deletes_at_once_what_lingers(
    deerflow: DeerFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.runtime.threads._SHUTDOWN_SECONDS", 60)
    run = await admitted(deerflow, "t1")
    await deerflow.storage.runs.settle(run.id, attempt=1, end=RunEnd(RunStatus.SUCCESS))
    lingering = asyncio.create_task(deerflow.threads.delete_temporary(run))
    await asyncio.sleep(0)  # it waits from its first step on

    lingering.cancel()
    await asyncio.gather(lingering, return_exceptions=True)

    assert await left(deerflow) == ([], [])
