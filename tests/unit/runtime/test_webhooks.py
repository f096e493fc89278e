"""Webhook addresses that cannot be called are refused, or given up once."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deerflow.agents import StateReader
from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest, RunStatus
from deerflow.errors import InvalidInputError
from deerflow.guarded_http import check_web_address
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.webhooks import Webhooks
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
        check_web_address(url, what="webhook")


@pytest.mark.parametrize(
    "url", ["https://example.org/done", "http://127.0.0.1:8080/", "https://bücher.example"]
)
def test_an_address_is_taken(url: str) -> None:
    check_web_address(url, what="webhook")


async def test_a_run_that_never_came_is_forgotten_and_one_that_is_being_admitted_is_not(
    storage: Storage,
) -> None:
    webhooks = Webhooks(storage, ThreadStates(StateReader(storage.checkpoints)), lambda: ())
    await webhooks.expect("coming", ODD)
    await storage.store.aput(
        ("webhooks",), "refused", {"url": ODD, "server": webhooks._server_id, "since": 1}
    )

    await webhooks._deliver_due()

    assert [item.key for item in await storage.store.asearch(("webhooks",))] == ["coming"]


SECRETS = ("canary-login-1", "sk_live_9a8b7c6d5e4f3a2b1c", "canary-query-2")
SECRET = "://me:{}@127.0.0.1:9/hooks/{}?token={}".format(*SECRETS)


async def test_tokens_in_an_address_are_neither_told_nor_logged(
    storage: Storage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "deerflow.runtime.webhooks")
    webhooks = Webhooks(storage, ThreadStates(StateReader(storage.checkpoints)), lambda: ())
    await storage.runs.create("r1", RunRequest("t1"), owner="me")

    with pytest.raises(InvalidInputError, match="is refused") as private:
        await webhooks.check(f"http{SECRET}")
    with pytest.raises(InvalidInputError, match="is no address") as odd:
        await webhooks.check(f"ftp{SECRET}")

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("name or service not known")

    with monkeypatch.context() as patch:
        patch.setattr("deerflow.addresses.look_up", unknown)
        await webhooks.check(f"http{SECRET}".replace("127.0.0.1", "example.org"))
    await webhooks._deliver(await storage.runs.get("r1"), f"http{SECRET}")

    shown = f"{private.value} {odd.value} {caplog.text}"
    assert [secret for secret in SECRETS if secret in shown] == []
    assert "webhook http://********@example.org:9/hooks/********?token=******** cannot be looked up" in shown
    assert "webhook of run r1 was not delivered: it is refused: 127.0.0.1 is a private" in shown


async def test_an_address_that_cannot_be_looked_up_is_given_up_once(storage: Storage) -> None:
    await storage.runs.create("r1", RunRequest("t1"), owner="me")
    run = await storage.runs.get("r1")
    webhooks = Webhooks(storage, ThreadStates(StateReader(storage.checkpoints)), lambda: ())
    await storage.store.aput(("webhooks",), run.id, {"url": ODD, "server": webhooks._server_id})
    await storage.runs.settle("r1", attempt=1, end=RunEnd(RunStatus.SUCCESS))

    delivering = asyncio.create_task(webhooks.run())
    async with asyncio.timeout(60):
        while await storage.store.asearch(("webhooks",)):  # noqa: ASYNC110 - the store sends no word
            await asyncio.sleep(0.01)
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)

    assert webhooks._deliveries == {}
