"""What MCP servers send: counted the same in any pieces, cut, and turned into an answer within limits."""

import base64
import json
from typing import Any

from fuzz.inputs import cuts, json_values, splits, texts
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic import ValidationError
from support.loop_watch import LoopWatch

from deerflow.mcp.base import Limits
from deerflow.mcp.bounds import EventCounter, cut
from deerflow.mcp.session import answer_of

SMALL = Limits(items=5, text_chars=200, file_bytes=64, files=2)
EVENTS = st.lists(
    st.one_of(
        json_values.map(lambda value: b"data: " + json.dumps(value).encode()),
        st.sampled_from(
            (b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r", b"event: x", b'"', b"\\", b"[[")
        ),
    ),
    max_size=12,
).map(b"".join)
KINDS = st.sampled_from(("text", "image", "audio", "resource", "resource_link", "odd"))
DATA = st.one_of(texts, st.binary(max_size=120).map(lambda data: base64.b64encode(data).decode()))
RESOURCES = st.fixed_dictionaries({"uri": texts}, optional={"text": texts, "blob": DATA, "mimeType": texts})
BLOCKS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries({"type": st.sampled_from(("image", "audio")), "data": DATA, "mimeType": texts}),
    st.fixed_dictionaries({"type": st.just("resource"), "resource": RESOURCES}),
    st.fixed_dictionaries({"type": st.just("resource_link"), "name": texts, "uri": texts}),
    json_values,
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=8)},
    optional={"structuredContent": st.dictionaries(texts, json_values, max_size=3), "isError": st.booleans()},
)


@given(EVENTS, cuts)
def test_events_are_counted_the_same_in_any_pieces(data: bytes, at: list[int]) -> None:
    counts = []
    for pieces in ([data], splits(data, at)):
        counter = EventCounter()
        for piece in pieces:
            counter.feed(piece)
        counts.append(counter.count)

    assert counts[0] == counts[1]


@given(st.dictionaries(st.sampled_from(("tools", "content", "structuredContent", "_meta", "x")), json_values))
def test_a_message_is_cut_to_its_limits(values: dict[str, Any]) -> None:
    kept = cut(JSONRPCResponse(jsonrpc="2.0", id=1, result=dict(values)), SMALL)
    cut(JSONRPCRequest(jsonrpc="2.0", id=1, method="x", params=dict(values)), SMALL)
    cut(JSONRPCNotification(jsonrpc="2.0", method="x", params=dict(values)), SMALL)

    assert isinstance(kept, JSONRPCResponse)
    assert all(
        len(value) <= 6
        for key, value in kept.result.items()
        if isinstance(value, list) and key in ("tools", "content", "x")
    )


@given(RESULTS)
async def test_a_result_becomes_an_answer(result: dict[str, Any]) -> None:
    try:
        parsed = CallToolResult.model_validate(result)
    except ValidationError:
        return

    async with LoopWatch():
        answer = await answer_of(parsed, SMALL)

    assert len(answer.text) <= SMALL.text_chars + 80
    assert len(answer.files) <= SMALL.files
    assert all(len(file.data) <= SMALL.file_bytes + 2 for file in answer.files)
