"""The public `langgraph_sdk` client when its connection breaks, or its run does."""

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from langgraph_sdk import get_client
from support.gateway import Gateway
from support.model_server import ScriptedModel, status, text
from support.waiting import until

from deerflow.errors import StorageAwayError

LEAD = "lead_agent"


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


class Cutter:
    """Stands between a client and a gateway, cuts one connection at a sign, and then opens a gate."""

    def __init__(self, gateway: Gateway, sign: bytes, gate: threading.Event) -> None:
        self._gateway = urlsplit(gateway.url)
        self._sign = sign
        self._gate = gate
        self.has_cut = False
        self._clients: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        there, back = await asyncio.open_connection(self._gateway.hostname, self._gateway.port)
        asking = asyncio.create_task(_pass_on(reader, back))
        try:
            while data := await there.read(65536):
                writer.write(data)
                await writer.drain()
                if self._sign in data and not self.has_cut:
                    self.has_cut = True
                    break
        finally:
            asking.cancel()
            back.close()
            writer.close()
            if self.has_cut:
                self._gate.set()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("prefix", ["/api", "/api/langgraph"])
async def test_a_stream_that_breaks_off_is_read_on_by_the_client_itself(
    gateway: Gateway, model: ScriptedModel, gate: threading.Event, prefix: str
) -> None:
    model.on("tell", text("one two three four").held(gate, after=1))
    cutter = Cutter(gateway, b"event: values", gate)

    async with cutter.listening() as url, get_client(url=f"{url}{prefix}", api_key=None) as client:
        thread = (await client.threads.create())["thread_id"]
        stream = client.runs.stream(thread, LEAD, input=ask("tell"), on_disconnect="continue")
        parts = [part async for part in stream]
        run = parts[0].data["run_id"]
        again = [part async for part in client.runs.join_stream(thread, run)]

    assert cutter.has_cut
    assert parts[-1].event == "end"
    assert [(part.id, part.event, part.data) for part in parts] == [
        (part.id, part.event, part.data) for part in again
    ]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which this machine does not have")
async def test_a_stream_that_breaks_off_is_read_on_by_the_js_client_too(
    gateway: Gateway, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("tell", text("one two three four").held(gate, after=1))
    cutter = Cutter(gateway, b"event: values", gate)

    async with cutter.listening() as url:
        script = Path(__file__).parent / "js/reconnect.mjs"
        node = await asyncio.create_subprocess_exec(
            "node", str(script), f"{url}/api/langgraph", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await node.communicate()

    assert cutter.has_cut
    seen = json.loads(output)
    assert len(seen["ids"]) > 3
    assert seen["ids"] == seen["again"]


async def test_who_waits_for_a_run_that_fails_is_told_so(gateway: Gateway, model: ScriptedModel) -> None:
    model.on("break", status(400, message="no such thing"))

    async with get_client(url=gateway.api, api_key=None) as client:
        thread = (await client.threads.create())["thread_id"]
        with pytest.raises(Exception, match="no such thing") as failure:
            await client.runs.wait(thread, LEAD, input=ask("break"))
        answer: Any = await client.runs.wait(thread, LEAD, input=ask("break"), raise_error=False)
        [*_, first] = await client.runs.list(thread)
        joined: Any = await client.runs.join(thread, first["run_id"])

    assert str(failure.value).startswith("Model")
    assert answer["status"] == joined["status"] == "error"
    assert answer["__error__"] == {"error": answer["__error__"]["error"], "message": answer["error"]}
    assert joined["__error__"] == answer["__error__"]


async def test_nobody_waits_for_a_client_that_has_left(gateway: Gateway) -> None:
    wish = {"assistant_id": LEAD, "input": ask("later"), "after_seconds": 3600, "if_not_exists": "create"}

    def waiting() -> int:
        assert gateway.loop is not None
        work = (task.get_coro() for task in asyncio.all_tasks(gateway.loop))
        return sum("run_asgi" in getattr(each, "__qualname__", "") for each in work)

    async with gateway.client() as api:
        run = (await api.post("/threads/t1/runs", json=wish)).json()["run_id"]
        async with gateway.client() as other:
            joining = asyncio.create_task(other.get(f"/threads/t1/runs/{run}/join"))
            await until(waiting)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        await until(lambda: not waiting())
        left = (await api.get(f"/threads/t1/runs/{run}")).json()

    assert left["status"] == "pending"


async def test_a_wait_that_breaks_off_is_not_answered_as_if_the_run_had_ended(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(run_id: str) -> None:
        raise StorageAwayError("the database cannot be reached")

    wish = {"assistant_id": LEAD, "input": ask("later"), "after_seconds": 3600, "if_not_exists": "create"}
    assert gateway.deerflow is not None
    monkeypatch.setattr(gateway.deerflow.runs, "wait", away)

    async with gateway.client() as api:
        run = (await api.post("/threads/t1/runs", json=wish)).json()["run_id"]
        joined = await api.get(f"/threads/t1/runs/{run}/join")

    assert (joined.status_code, joined.json()["code"]) == (500, "storage_failed")


async def test_an_answer_says_where_it_can_be_had_again(gateway: Gateway, model: ScriptedModel) -> None:
    model.on("hello", text("hi"))
    wish = {"assistant_id": LEAD, "input": ask("hello")}

    async with gateway.client() as api:
        thread = (await api.post("/threads", json={})).json()["thread_id"]
        waited = await api.post(f"/threads/{thread}/runs/wait", json=wish)
        streamed = await api.post(f"/threads/{thread}/runs/stream", json=wish)
        same = await api.get(waited.headers["Location"])

    assert waited.headers["Location"].endswith("/join")
    assert same.json()["messages"][: len(waited.json()["messages"])] == waited.json()["messages"]
    assert streamed.headers["Location"].endswith("/stream")
    assert streamed.headers["Content-Location"].startswith(f"/api/threads/{thread}/runs/")
