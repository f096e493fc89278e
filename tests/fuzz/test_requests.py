"""Requests to the gateway: whatever is sent, there is an answer in time, and it is no error of ours."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fuzz.inputs import ODD_TEXTS, as_json, deep_values, examples, json_values, texts
from hypothesis import given
from hypothesis import strategies as st
from support.gateway import Gateway
from support.loop_watch import LoopWatch
from support.model_server import ScriptedModel, text
from support.shared import shared_gateway

SECONDS = 60
"""How long an answer may take on a busy machine, a run with a scripted model included."""
THREAD = "11111111-1111-4111-8111-111111111111"
LEFT_OUT = re.compile(
    r"/stream$|/stream/events$|/join$|/mcp/servers/|/integrations/|/channels/|/browser/|/oauth/|/callback/"
)
"""Streams that go on until somebody ends them, and routes that dial: those have tests of their own."""
DIALS = frozenset({"webhook", "mcp_servers", "mcpServers", "url"})
"""Keys whose value is an address: nothing here is to reach out of this machine."""

PLACES = st.one_of(st.sampled_from((THREAD, "latest", "lead_agent", *ODD_TEXTS)), texts).map(
    lambda found: quote(found[:200], safe="") or "-"
)
HEADERS = st.dictionaries(
    st.sampled_from(
        (
            "Last-Event-ID",
            "Idempotency-Key",
            "If-Match",
            "Range",
            "Accept",
            "Content-Type",
            "X-User-Id",
            "Accept-Language",
        )
    ),
    st.one_of(
        st.sampled_from(
            (
                "application/json",
                "text/plain",
                "multipart/form-data",
                "multipart/form-data; boundary=x",
                "*",
                "0-0",
                "bytes=9-1",
            )
        ),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip),
    ),
    max_size=2,
)
RAW_BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        (b"", b"{", b"null", b"[[", b'"\\ud800"', b'{"a":1,"a":2}', b"NaN", b"1e999", b"\xff\xfe{")
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    with ScriptedModel() as scripted:
        scripted.on(lambda _: True, text("Yes."))
        yield scripted


gateway = shared_gateway()
Route = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def routes(gateway: Gateway) -> list[Route]:
    """Return method, path and description of every operation."""
    document = httpx.get(f"{gateway.url}/openapi.json", timeout=SECONDS, trust_env=False, verify=False).json()
    with httpx.Client(base_url=gateway.api, timeout=SECONDS, trust_env=False, verify=False) as client:
        # What is made at first use, such as an agent, is no answer to what is sent.
        client.post("/threads", json={"thread_id": THREAD})
        client.post(
            f"/threads/{THREAD}/runs/wait", json={"input": {"messages": [{"role": "user", "content": "Hi"}]}}
        )
        client.post(f"/threads/{THREAD}/compact", json={})
    schemas = document["components"]["schemas"]
    return [
        (method, path, {"body": _body_keys(operation, schemas), "query": _query_names(operation)})
        for path, operations in sorted(document["paths"].items())
        for method, operation in sorted(operations.items())
        if not LEFT_OUT.search(path)
    ]


def _body_keys(operation: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    names = re.findall(r"#/components/schemas/([^']+)'", str(content))
    found = {key for name in names for key in schemas[name].get("properties", {})}
    return sorted(found - DIALS)


def _query_names(operation: dict[str, Any]) -> list[str]:
    return sorted(one["name"] for one in operation.get("parameters", ()) if one["in"] == "query")


@examples(0.4)
@given(st.data())
async def test_every_request_is_answered_and_none_breaks_the_server(
    gateway: Gateway, routes: list[Route], data: st.DataObject
) -> None:
    requests = [
        drawn(route, data) for route in data.draw(st.lists(st.sampled_from(routes), min_size=4, max_size=4))
    ]

    async with gateway.client() as client, asyncio.timeout(2 * SECONDS):
        await client.post("/threads", json={"thread_id": THREAD, "if_exists": "do_nothing"})
        client.base_url = httpx.URL(gateway.url)
        watched = asyncio.run_coroutine_threadsafe(_watch(done := asyncio.Event()), gateway.loop)
        answers = [await client.request(**request, timeout=SECONDS) for request in requests]
        gateway.loop.call_soon_threadsafe(done.set)
        await asyncio.wrap_future(watched)

    for request, answer in zip(requests, answers, strict=True):
        assert answer.status_code < 500 or answer.status_code == 501, (
            request,
            answer.status_code,
            answer.text,
        )


async def _watch(done: asyncio.Event) -> None:
    """Measure the gateway's own loop."""
    async with LoopWatch(clock=time.thread_time):
        await done.wait()


def drawn(route: Route, data: st.DataObject) -> dict[str, Any]:
    """Return a request to a route: its own words with odd values, or something else entirely."""
    method, path, words = route
    address = re.sub(r"\{\w+\}", lambda _: data.draw(PLACES), path)
    names = st.sampled_from(words["query"]) if words["query"] else texts
    request: dict[str, Any] = {
        "method": method.upper(),
        "url": address,
        "params": data.draw(st.dictionaries(names, st.one_of(texts, st.integers().map(str)), max_size=3)),
        "headers": data.draw(HEADERS),
    }
    if method in ("post", "put", "patch", "delete"):
        keys = st.sampled_from(words["body"]) if words["body"] else texts
        body = st.one_of(st.dictionaries(keys, json_values, max_size=5), json_values, deep_values)
        request["content"] = data.draw(st.one_of(body.map(as_json), body.map(as_json), RAW_BODIES))
        request["headers"].setdefault("Content-Type", "application/json")
    return request
