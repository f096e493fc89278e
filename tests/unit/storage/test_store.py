"""Reading items writes only where a TTL has to be refreshed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as opened:
        yield opened


async def test_items_are_read_while_another_process_writes(storage: Storage, tmp_path: Path) -> None:
    await storage.store.aput(("crons",), "c1", {"at": "noon"})
    writer = sqlite3.connect(Paths(tmp_path).database, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    item = await storage.store.aget(("crons",), "c1")
    found = await storage.store.asearch(("crons",))
    waiting = asyncio.ensure_future(storage.store.aput(("crons",), "c2", {}))
    writer.execute("ROLLBACK")
    writer.close()
    await waiting

    assert item is not None
    assert [each.value for each in (item, *found)] == [{"at": "noon"}] * 2
    assert len(await storage.store.asearch(("crons",))) == 2
