"""Addresses that cannot be told are refused at the door, and given up once behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deerflow.agents import StateReader
from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest, RunStatus
from deerflow.errors import InvalidInputError
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.webhooks import Webhooks, check_webhook
from deerflow.storage import RunEnd, Storage, open_storage

ODD = f"http://{'a' * 64}.example.org/done"
"""No part of a host's name is that long, and looking it up is no error of the network."""


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(backend="memory"), Paths(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("url", [ODD, "http://a..b/", "https://", "ftp://example.org", "http://[::1", "x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is no address"):
        check_webhook(url)


@pytest.mark.parametrize(
    "url", ["https://example.org/done", "http://127.0.0.1:8080/", "https://bücher.example"]
)
def test_an_address_is_taken(url: str) -> None:
    check_webhook(url)


async def test_a_run_that_never_came_is_forgotten_and_one_that_is_being_admitted_is_not(
    storage: Storage,
) -> None:
    webhooks = Webhooks(storage, ThreadStates(StateReader(storage.checkpoints)), lambda: ())
    await webhooks.expect("coming", ODD)
    await storage.store.aput(("webhooks",), "refused", {"url": ODD, "server": webhooks._me, "since": 1})

    await webhooks._look()

    assert [item.key for item in await storage.store.asearch(("webhooks",))] == ["coming"]


async def test_an_address_that_cannot_be_looked_up_is_given_up_once(storage: Storage) -> None:
    await storage.runs.create("r1", RunRequest("t1"), owner="me")
    run = await storage.runs.get("r1")
    webhooks = Webhooks(storage, ThreadStates(StateReader(storage.checkpoints)), lambda: ())
    await storage.store.aput(("webhooks",), run.id, {"url": ODD, "server": webhooks._me})
    await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.SUCCESS))

    telling = asyncio.create_task(webhooks.run())
    async with asyncio.timeout(60):
        while await storage.store.asearch(("webhooks",)):  # noqa: ASYNC110 - the store sends no word
            await asyncio.sleep(0.01)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)

    assert webhooks._telling == {}
