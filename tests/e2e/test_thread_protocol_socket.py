"""The thread protocol over WebSocket, and through the public clients, unmodified."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from langgraph_sdk import get_client
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, call, reasoning, text
from support.waiting import until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from deerflow.domain import new_id

HERE = Path(__file__).parent / "js"
LOOK = call("ls", description="look", path="/mnt/user-data/workspace")
ASK = call("bash", description="Step", command="echo hi")

Frame = dict[str, Any]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests here; each has a thread of its own."""
    with ScriptedModel() as model:
        yield from _served(model, tmp_path_factory.mktemp("site"))


def _served(model: ScriptedModel, home: Path) -> Iterator[Gateway]:
    model.on("go", reasoning("hm") + LOOK, text("done now"))
    model.on("ask", ASK, text("said"))
    model.on(
        "deleg", call("task", description="part", prompt="sub", subagent_type="general-purpose"), text("ok")
    )
    model.on("sub", LOOK, text("sub done"))
    model.on("slow", text("word " * 400, delay=0.1))
    host = {"use": "local", "allow_host_bash": True}
    with running_gateway(home, model.base_url, sandbox=host) as running:
        yield running


class Line:
    """One socket: sends commands, and keeps what came in between."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.events: list[Frame] = []
        self._next = 0

    async def ask(self, method: str, **params: Any) -> Frame:
        self._next += 1
        await self.raw(json.dumps({"id": self._next, "method": method, "params": params}))
        return await self.answer()

    async def raw(self, data: str | bytes) -> None:
        await self._socket.send(data)

    async def answer(self) -> Frame:
        while (frame := await self._receive())["type"] == "event":
            self.events.append(frame)
        return frame

    async def read(self, *, ends: int = 1) -> list[Frame]:
        """Return the events up to the end of so many runs."""
        seen, self.events = self.events, []
        while sum(_is_end(frame) for frame in seen) < ends:
            seen.append(await self._receive())
        return seen

    async def _receive(self) -> Frame:
        frame: Frame = json.loads(await asyncio.wait_for(self._socket.recv(), 60))
        return frame


def _is_end(frame: Frame) -> bool:
    ends = ("completed", "failed", "interrupted")
    params = frame["params"]
    return frame["method"] == "lifecycle" and not params["namespace"] and params["data"]["event"] in ends


@asynccontextmanager
async def line(gateway: Gateway, thread: str) -> AsyncIterator[Line]:
    url = f"{gateway.api.replace('http', 'ws', 1)}/threads/{thread}/stream/events"
    async with connect(url, proxy=None) as socket:
        yield Line(socket)


def ask(words: str) -> dict[str, Any]:
    return {"assistant_id": "lead_agent", "input": {"messages": [{"role": "user", "content": words}]}}


async def test_commands_answers_and_events_share_a_socket(gateway: Gateway) -> None:
    async with line(gateway, new_id()) as socket:
        subscribed = await socket.ask("subscription.subscribe", channels=["lifecycle", "input"])
        more = await socket.ask("subscription.subscribe", channels=["values", "messages", "lifecycle"])
        started = await socket.ask("run.start", **ask("go"))
        seen = await socket.read()
        tree = await socket.ask("agent.getTree")

    assert subscribed["result"]["subscription_id"] != more["result"]["subscription_id"]
    assert started["result"]["run_id"]
    ids = [event["event_id"] for event in seen]
    assert len(ids) == len(set(ids)), "what happens now is sent once, however many subscriptions want it"
    assert {event["method"] for event in seen} == {"lifecycle", "values", "messages"}
    assert tree["result"]["tree"] == {"namespace": [], "status": "completed", "graph_name": "lead_agent"}


async def test_a_new_subscription_replays_from_where_it_says_and_one_that_ends_is_silent(
    gateway: Gateway,
) -> None:
    thread = new_id()
    async with line(gateway, thread) as socket:
        first = await socket.ask("subscription.subscribe", channels=["lifecycle", "values"])
        await socket.ask("run.start", **ask("go"))
        seen = await socket.read()
        await socket.ask("subscription.unsubscribe", subscription_id=first["result"]["subscription_id"])
        gone = await socket.ask(
            "subscription.unsubscribe", subscription_id=first["result"]["subscription_id"]
        )
    async with line(gateway, thread) as socket:
        await socket.ask("subscription.subscribe", channels=["lifecycle", "values"], since=seen[2]["seq"])
        rest = await socket.read()
        await socket.ask("subscription.subscribe", channels=["lifecycle", "values"])
        again = await socket.read()

    assert gone["error"] == "no_such_subscription"
    assert rest == seen[3:]
    assert again == seen


async def test_the_end_of_a_run_comes_after_all_that_was_asked_for_a_moment_later(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = new_id()
    async with line(gateway, thread) as socket:
        await socket.ask("subscription.subscribe", channels=["lifecycle"])
        await socket.ask("run.start", **ask("go"))
        await socket.read()  # it is over before anybody asks for its values
    for moment in (0.25, 4, 40):  # longer where the machine took longer than the moment
        monkeypatch.setattr("deerflow.gateway.protocol.socket._SUBSCRIBE_SECONDS", moment)
        began = time.monotonic()
        async with line(gateway, thread) as socket:
            await socket.ask("subscription.subscribe", channels=["lifecycle"])
            await asyncio.sleep(0.05)
            await socket.ask("subscription.subscribe", channels=["values"])
            took = time.monotonic() - began
            seen = await socket.read()
        if took < moment:
            break

    assert {event["method"] for event in seen} == {"lifecycle", "values"}
    numbers = [event["seq"] for event in seen if event["method"] == "values"]
    assert numbers
    assert max(numbers) < seen[-1]["seq"]
    assert sum(map(_is_end, seen)) == 1


async def test_bad_frames_are_answered_and_the_socket_stays(gateway: Gateway) -> None:
    async with line(gateway, new_id()) as socket:
        for bad in ("not json", "[]", '{"method": "nope"}', b"bytes"):
            await socket.raw(bad)
            answer = await socket.answer()
            assert (answer["type"], answer["id"], answer["error"]) == ("error", None, "invalid_argument")
        refused = await socket.ask("subscription.subscribe", channels=["bogus"])
        unknown = await socket.ask("nope")
        for _ in range(64):
            await socket.ask("subscription.subscribe", channels=["lifecycle"])
        too_many = await socket.ask("subscription.subscribe", channels=["lifecycle"])

    assert refused["error"] == "invalid_argument"
    assert unknown["error"] == "unknown_command"
    assert "unsubscribe" in too_many["message"]


async def test_a_name_that_no_thread_can_have_closes_the_socket_with_its_status(gateway: Gateway) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        async with line(gateway, "no.id") as socket:
            await socket.answer()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4422


async def test_a_page_from_elsewhere_gets_no_socket(gateway: Gateway) -> None:
    url = f"{gateway.api.replace('http', 'ws', 1)}/threads/{new_id()}/stream/events"

    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, proxy=None, origin=Origin("http://elsewhere.example")):
            pass

    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_the_python_client_streams_and_answers(
    gateway: Gateway, transport: Literal["sse", "websocket"]
) -> None:
    async with get_client(url=gateway.api, api_key=None) as client:
        async with client.threads.stream(assistant_id="lead_agent", transport=transport) as thread:
            await thread.run.start(input=ask("go")["input"])
            projected = [
                item async for item in thread.interleave_projections(["values", "messages", "tool_calls"])
            ]
            messages = [await item.text for name, item in projected if name == "messages"]
            tools = [(item.name, await item.output) for name, item in projected if name == "tool_calls"]
            output: Any = await asyncio.wait_for(thread.output, 60)
        async with client.threads.stream(assistant_id="lead_agent", transport=transport) as thread:
            await thread.run.start(input=ask("ask")["input"])
            await until(lambda thread=thread: thread.interrupted and thread.interrupts)
            (asked,) = thread.interrupts
            decision = {"type": "approve", "hash": asked["value"]["hash"]}
            await thread.run.respond({"decisions": [decision]})
            answered: Any = await asyncio.wait_for(thread.output, 60)

    assert messages == ["", "done now"]
    assert [(name, out["content"]) for name, out in tools] == [("ls", "(empty)")]
    assert output["messages"][-1]["content"] == "done now"
    assert answered["messages"][-1]["content"] == "said"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which this machine does not have")
async def test_the_js_client_streams_and_answers_on_both_transports(gateway: Gateway) -> None:
    node = await asyncio.create_subprocess_exec(
        "node",
        "--experimental-websocket",
        str(HERE / "thread_stream.mjs"),
        f"{gateway.url}/api/langgraph",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(node.communicate(), 180)

    assert node.returncode == 0
    for seen in json.loads(output):
        assert seen == {
            "messages": ["", "(empty)", "done now"],
            "tools": {"ls": "(empty)"},
            "last": "done now",
            "interrupted": True,
            "asked": "bash",
            "answered": "said",
            "subagents": ["general-purpose"],
            "refused": "unknown_error",
            "stopped": "interrupted",
        }
