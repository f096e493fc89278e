"""Addresses that are told of a run's end, and those that are not."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.gateway import running_gateway
from support.model_server import ScriptedModel, text
from support.waiting import until

from deerflow.errors import AddressRefusedError, InvalidInputError, StorageAwayError
from deerflow.guarded_http import check_web_address
from deerflow.runtime.webhooks import post

LOOPBACK = {"webhook_allow_cidrs": ["127.0.0.0/8", "::1/128"]}
PATIENCE_SECONDS = 120
ASK = {"messages": [{"role": "user", "content": "go"}]}


class Listener:
    """Takes what is posted, answering with the statuses it was given and then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.seen: asyncio.Queue[tuple[dict[str, Any], str]] = asyncio.Queue()
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        await self.seen.put((json.loads(await request.read()), request.headers["X-DeerFlow-Run-Id"]))
        status = self.statuses.pop(0) if self.statuses else 200
        headers = {"Location": f"http://127.0.0.1:{self.port}/elsewhere"} if status == 302 else {}
        return web.Response(status=status, headers=headers)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/done"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Listener"]:
        app = web.Application()
        app.router.add_post("/{any:.*}", self.take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


async def test_a_webhook_is_told_of_the_end_and_again_when_it_failed(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.runtime.webhooks._RETRY_SECONDS", (0.05, 0.05))
    model.on("go", text("there"))
    listener = Listener(503)
    with running_gateway(tmp_path, model.base_url, runs=LOOPBACK) as gateway:
        async with gateway.client() as api, listener.listening():
            body = {"input": ASK, "webhook": listener.url}
            run = (await api.post("/threads/t1/runs", json=body)).json()
            first = await asyncio.wait_for(listener.seen.get(), PATIENCE_SECONDS)
            second = await asyncio.wait_for(listener.seen.get(), PATIENCE_SECONDS)

    sent, run_id = second
    assert first[1] == run_id == run["run_id"] == sent["run_id"]
    assert (sent["status"], sent["values"]["messages"][-1]["content"]) == ("success", "there")


async def test_a_webhook_is_told_though_the_server_died_with_its_answer(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.on("go", text("there"))
    listener = Listener()
    with running_gateway(tmp_path, model.base_url, runs=LOOPBACK) as gateway:
        assert gateway.deerflow is not None
        create = gateway.deerflow.storage.runs.create

        async def unanswered(*args: Any, **more: Any) -> None:
            await create(*args, **more)
            raise StorageAwayError("whether this was stored is not known")

        monkeypatch.setattr(gateway.deerflow.storage.runs, "create", unanswered)
        async with gateway.client() as api, listener.listening():
            answer = await api.post("/threads/t1/runs", json={"input": ASK, "webhook": listener.url})
            sent, _ = await asyncio.wait_for(listener.seen.get(), PATIENCE_SECONDS)

    assert answer.status_code == 500
    assert (sent["status"], sent["thread_id"]) == ("success", "t1")


async def test_a_private_address_is_refused_with_the_request_and_not_called_later_either(
    tmp_path: Path, model: ScriptedModel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name whose lookup takes too long is accepted and checked at the end; a busy machine must not do that.
    monkeypatch.setattr("deerflow.runtime.webhooks._RESOLVE_SECONDS", PATIENCE_SECONDS)
    model.on("go", text("there"))
    listener = Listener()
    with running_gateway(tmp_path, model.base_url, scheduler={"enabled": True}) as gateway:
        async with gateway.client() as api, listener.listening():
            body = {"input": ASK, "webhook": listener.url}
            refused = await api.post("/threads/t1/runs/wait", json=body)
            cron = await api.post("/runs/crons", json={**body, "schedule": "0 0 1 1 *"})
            threads = await api.post("/threads/count", json={})

            async def unknown(host: str, port: int) -> list[str]:
                raise OSError("name or service not known")

            with monkeypatch.context() as patch:  # its name becomes private only after the request
                patch.setattr("deerflow.addresses.look_up", unknown)
                later = await api.post("/threads/t1/runs", json=body)
            # A refusal at the end has no event but its line in the log.
            await until(lambda: "webhook_allow_cidrs" in caplog.text)

    assert (refused.status_code, cron.status_code, later.status_code) == (400, 400, 200)
    assert listener.url in refused.json()["detail"]
    assert "see runs.webhook_allow_cidrs" in refused.json()["detail"]
    assert threads.json() == 0  # nothing was started
    assert listener.seen.empty()


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org", "file:///etc/passwd", "https://", "example.org", "http://[::1", "gopher://x", "http://x:99999"],
)  # fmt: skip
async def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="write it like"):
        check_web_address(url, what="webhook")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "192.168.0.1", "[::1]", "[fd00::1]",
     "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f000001", "[64:ff9b::7f00:1]"],
)  # fmt: skip
async def test_every_spelling_of_a_private_address_is_refused(host: str) -> None:
    with pytest.raises(AddressRefusedError, match="private"):
        await post(f"http://{host}:9/x", b"{}", run_id="r")


async def test_a_redirect_is_not_followed() -> None:
    listener = Listener(302)
    async with listener.listening():
        problem = await post(listener.url, b"{}", run_id="r", allow_cidrs=["127.0.0.0/8", "::1/128"])

    assert problem is None
    assert listener.seen.qsize() == 1
