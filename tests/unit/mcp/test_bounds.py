"""Nothing that a server sends holds the event loop."""

import json
import time
from typing import Any

import pytest
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from starlette.responses import JSONResponse, Response
from support.loop_watch import LoopWatch

from deerflow.domain.json_counter import JsonCounter
from deerflow.errors import McpError
from deerflow.mcp import McpServer
from deerflow.mcp.base import Limits
from deerflow.mcp.bounds import EventCounter, cut

from .conftest import BROKEN, NewServer, OldServer

TOO_MANY = "more than 50000 parts"
HEAVY = [
    ("pattern", '{"s": "aaaa'),
    ("blocks", TOO_MANY),
    ("some blocks", "blocks after the first 1000 were left out"),
    ("values", TOO_MANY),
    ("some values", '{"n": [{"a": 0}, {"a": 1}'),
    ("text", "more characters were left out"),
    ("image", ""),
    ("keys", TOO_MANY),
]


@pytest.mark.parametrize(("what", "outcome"), HEAVY)
async def test_a_program_that_sends_much_does_not_hold_the_loop(
    what: str, outcome: str, new_server: NewServer
) -> None:
    server = new_server(BROKEN, "heavy")
    await server.tools()

    async with LoopWatch():
        try:
            answer = (await server.call("act", {"what": what})).text
        except McpError as error:
            answer = str(error)

    assert outcome in answer


async def test_schemas_that_take_long_to_check_do_not_hold_the_loop(new_server: NewServer) -> None:
    server = new_server(BROKEN, "heavy")

    async with LoopWatch():
        tools = await server.tools()

    assert [tool.name for tool in tools] == ["act", "odd", "other", "wide0", "wide1", "wide2"]


def test_lists_are_cut_before_they_are_checked_one_by_one() -> None:
    limits = Limits(items=3)
    wide: dict[str, Any] = {str(number): number for number in range(4)}
    result = {"content": [*range(9)], "structuredContent": wide, "other": wide, "tools": [1]}

    answer = cut(JSONRPCResponse(jsonrpc="2.0", id=1, result=result), limits)

    assert isinstance(answer, JSONRPCResponse)
    assert answer.result == {**result, "content": [0, 1, 2, 3], "other": {}}
    for deep in (wide, {"a": [[1, 2, 3]]}):
        assert cut(JSONRPCNotification(jsonrpc="2.0", method="m", params=deep), limits) is None
        assert cut(JSONRPCRequest(jsonrpc="2.0", id=1, method="m", params=deep), limits) is None
    small = JSONRPCNotification(jsonrpc="2.0", method="m", params={"a": [1]})
    assert cut(small, limits) is small


async def test_all_schemas_of_a_server_together_are_bounded(new_server: NewServer) -> None:
    server = new_server(BROKEN, "schemas", limits=Limits(all_schema_nodes=7))

    assert [tool.name for tool in await server.tools()] == ["good"]
    assert "schemas of this server have more than 7 parts" in server.status.left_out[-1].reason


@pytest.mark.parametrize("kind", ["json", "events", "many lines"])
async def test_a_web_server_that_sends_many_parts_does_not_hold_the_loop(
    kind: str,
    server: McpServer,
    old: OldServer,
) -> None:
    server._limits = Limits(message_bytes=32_000_000)
    await server.tools()
    result = {"content": [{"type": "text", "text": "x"}] * 200_000}
    body = json.dumps({"jsonrpc": "2.0", "id": 3, "result": result})

    def act() -> Response:
        if kind == "json":
            return Response(body, media_type="application/json")
        lines = body.replace("}, {", "},\ndata: {") if kind == "many lines" else body
        return Response(f"event: message\ndata: {lines}\n\n", media_type="text/event-stream")

    old.act = act
    async with LoopWatch(clock=time.thread_time):
        with pytest.raises(McpError, match=TOO_MANY):
            await server.call("act", {})

    old.act = lambda: JSONResponse(None, status_code=500)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"a": [1, 2, {"b": "x,y[{"}]}', 5),
        ('["\\\\", "\\",[", "[\\\\\\"[", []]', 5),
        ('"' + "," * 1000 + '"', 0),
        ("[" * 500, 500),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_parts_are_counted_outside_of_strings_wherever_bytes_are_split(
    text: str, parts: int, size: int
) -> None:
    counter = JsonCounter()
    for start in range(0, len(text), size):
        counter.feed(text[start : start + size].encode())

    assert counter.count == parts


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_events_are_counted_one_by_one(end: str, size: int) -> None:
    line = end[: len(end) // 2]
    stream = f"data: [1, 2]{end}data: [1,{line}data: 2, 3, 4]{end}data: []{end}" * 3
    counter = EventCounter()

    for n in range(0, len(stream), size):
        counter.feed(stream[n : n + size].encode())

    assert counter.count == 4
