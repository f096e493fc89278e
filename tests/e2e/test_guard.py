"""What strangers, hostile bodies and many readers meet at the door, and what never leaves it."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, model_entry, parse_sse, running_gateway
from support.model_server import ScriptedModel, status, text

from deerflow.domain import new_id
from deerflow.gateway.app import GatewayOptions

PAGE = "https://app.example.org"
KEY = "sk-do-not-show-1234567890"


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, scripted: ScriptedModel) -> Iterator[Gateway]:
    entry = model_entry(scripted.base_url, api_key=KEY, default_headers={"X-Secret": KEY})
    options = GatewayOptions(origins=(PAGE,), has_docs=False)
    with running_gateway(tmp_path_factory.mktemp("guard"), None, options=options, models=[entry]) as running:
        yield running


@pytest.fixture
async def api(site: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with site.client() as client:
        yield client


def ask(question: str, **more: Any) -> dict[str, Any]:
    return {"input": {"messages": [{"role": "user", "content": question}]}, **more}


async def raw(site: Gateway, request: bytes) -> bytes:
    """Send bytes as they are and return what comes until the server closes, at most a while."""
    host, _, port = site.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(60):
            writer.write(request)
            await writer.drain()
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_foreign_host_is_told_how_to_come_in(api: httpx.AsyncClient) -> None:
    for path in ("/models", "/threads/search"):
        answer = await api.get(path, headers={"Host": "evil.example.org"})
        assert (answer.status_code, "localhost" in answer.json()["detail"]) == (403, True)


async def test_a_foreign_page_cannot_start_anything(api: httpx.AsyncClient, scripted: ScriptedModel) -> None:
    body = json.dumps(ask("hello")).encode()
    headers = {"Origin": "https://evil.example.org", "Content-Type": "text/plain"}

    answer = await api.post("/threads/csrf/runs", content=body, headers=headers)
    seen = await api.get("/models", headers={"Origin": "https://evil.example.org"})

    assert answer.status_code == 403
    assert "access-control-allow-origin" not in seen.headers
    assert (await api.get("/threads/csrf")).status_code == 404


async def test_a_listed_page_may_read_and_write(api: httpx.AsyncClient) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    preflight = await api.options("/threads", headers=asked)
    made = await api.post("/threads", json={}, headers={"Origin": PAGE})

    assert (preflight.status_code, made.status_code) == (200, 200)
    assert made.headers["access-control-allow-origin"] == PAGE
    assert "Content-Location" in made.headers["access-control-expose-headers"]


async def test_the_page_behind_a_proxy_of_this_machine_may_write(api: httpx.AsyncClient) -> None:
    # What Next.js sends for its rewrites: the Host of the target, the Origin of the page.
    proxied = {
        "Origin": "http://localhost:3000",
        "X-Forwarded-Host": "localhost:3000",
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Port": "3000",
        "X-Forwarded-Proto": "http",
    }
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-forwarded-host",
    }

    made = await api.post("/langgraph/threads", json={}, headers=proxied)
    hostile = await api.post("/threads", json={}, headers={**proxied, "Origin": "https://evil.example.org"})
    rebound = await api.get("/models", headers={**proxied, "X-Forwarded-Host": "evil.example.org:3000"})
    preflight = await api.options("/threads", headers=asked)

    assert [made.status_code, hostile.status_code, rebound.status_code] == [200, 403, 403]
    assert "GATEWAY_TRUSTED_PROXIES" in rebound.json()["detail"]
    # No page may send the header itself: the browser asks first.
    assert "access-control-allow-origin" not in preflight.headers


async def test_health_and_models_tell_no_secret(site: Gateway, api: httpx.AsyncClient) -> None:
    health = await api.get(f"{site.url}/health")
    models = await api.get("/models")
    one = await api.get("/models/scripted")

    assert (health.json()["status"], health.json()["service"]) == ("healthy", "deer-flow-gateway")
    assert health.json()["config"]["problem"] is None
    assert models.json()["models"] == [one.json()]
    assert set(one.json()) == {
        "name", "model", "display_name", "description", "supports_thinking",
        "supports_reasoning_effort", "supports_vision",
    }  # fmt: skip
    assert KEY not in health.text + models.text
    assert (await api.get("/models/unknown")).status_code == 404


async def test_the_docs_can_be_switched_off(site: Gateway, api: httpx.AsyncClient, tmp_path: Path) -> None:
    assets = [f"/docs/assets/{name}" for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")]
    paths = ["/docs", "/redoc", "/openapi.json", "/docs/assets/redoc.standalone.js", *assets]
    off = [
        (await api.get(f"{site.url}{path}")).status_code for path in ("/openapi.json", "/docs/x.js", *assets)
    ]
    with running_gateway(tmp_path, None) as other:
        async with other.client() as client:
            pages = [await client.get(f"{other.url}{path}") for path in paths]
            outside = await client.get(f"{other.url}/docs/assets/%2e%2e/core.py")

    assert set(off) == {404}
    assert [page.status_code for page in pages] == [200] * len(paths)
    for page in pages[:2]:  # nothing that a machine without internet could not load
        assert re.findall(r'(?:src|href)="(?!docs/assets/)[^"]*"', page.text) == []
        assert "default-src 'self'" in page.headers["content-security-policy"]
    assert outside.status_code == 404


async def test_both_prefixes_and_the_default_user_answer(api: httpx.AsyncClient) -> None:
    for path in ("/v1/auth/me", "/v1/auth/setup-status", "/v1/auth/providers", "/ok", "/info", "/features"):
        here, there = await api.get(path), await api.get(f"/langgraph{path}")
        assert (here.status_code, here.json()) == (200, there.json())
    found = (await api.post("/langgraph/assistants/search", json={"graph_id": "lead_agent"})).json()
    assert [assistant["assistant_id"] for assistant in found] == ["lead_agent"]
    assert (await api.get("/assistants/unknown")).status_code == 404


async def test_a_provider_that_repeats_the_key_is_not_repeated(
    api: httpx.AsyncClient, scripted: ScriptedModel
) -> None:
    scripted.will_say(status(401, message=f"Incorrect API key provided: {KEY}"))

    thread = new_id()
    events = await api.post(f"/threads/{thread}/runs/stream", json=ask("go"))
    listed = await api.get(f"/threads/{thread}/runs")

    kinds = {kind: data for kind, data, _ in parse_sse(events.text)}
    assert "Incorrect API key" in kinds["error"]["message"]
    assert KEY not in events.text + listed.text
    assert "Traceback" not in events.text


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (b'{"stream_mode": NaN}', {422}),
        (b'{"stream_mode": "\\ud800"}', {422}),
        (b'{"assistant_id": "\\ud800"}', {400}),
        (b'{"input": {"messages": [{"role": "user", "content": "\\ud800"}]}}', {400}),
        (b'{"input": {"messages": []}, "metadata": {"n": 1e999}}', {200, 400, 422}),
        (b'{"input": {"messages": []}, "metadata": {"n": ' + b"9" * 400 + b"}}", {400}),
        (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {400, 422}),
        (b'{"input": {"messages": ' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}}", {400, 422}),
        (b"\xff\xfe{}", {400, 422}),
        (b"[]", {422}),
        (b"null", {422}),
        (b"", {422}),
    ],
)
async def test_hostile_json_gets_a_plain_refusal(
    api: httpx.AsyncClient, scripted: ScriptedModel, content: bytes, codes: set[int]
) -> None:
    answer = await api.post(
        f"/threads/{new_id()}/runs", content=content, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code in codes, answer.text[:300]
    assert "Traceback" not in answer.text
    answer.json()


async def test_a_failure_of_ours_shows_no_trace(
    site: Gateway, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(name: str) -> None:
        raise RuntimeError(f"internal {KEY}")

    assert site.deerflow is not None
    monkeypatch.setattr(site.deerflow.models, "get", explode)
    answer = await api.get("/models/scripted")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert KEY not in answer.text


async def test_smuggled_and_oversized_requests_are_refused(site: Gateway) -> None:
    host = site.url.removeprefix("http://").encode()
    both = (
        b"POST /api/threads HTTP/1.1\r\nHost: %b\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: %b\r\n\r\n" % (host, host)
    )
    huge = b"GET /health HTTP/1.1\r\nHost: %b\r\nX-Big: %b\r\n\r\n" % (host, b"x" * 1_000_000)
    lying = b"GET /health HTTP/1.1\r\nHost: %b\r\nContent-Length: -5\r\nConnection: close\r\n\r\n" % host
    without = b"GET /api/models HTTP/1.0\r\n\r\n"

    assert (await raw(site, both)).count(b"healthy") == 0
    assert b"200 OK" not in await raw(site, huge)
    assert b"200 OK" not in await raw(site, lying)
    assert b"403" in (await raw(site, without)).split(b"\r\n")[0]


async def test_many_idle_readers_and_one_that_never_reads_hold_nobody_up(
    site: Gateway, scripted: ScriptedModel
) -> None:
    gate = threading.Event()
    scripted.on("hold them", text("a long answer " * 200).held(gate, after=3))
    thread = new_id()
    limits = httpx.Limits(max_connections=100)
    async with site.client(limits=limits) as api:
        body = ask("hold them", on_disconnect="continue", stream_mode=["messages-tuple"])
        run = (await api.post(f"/threads/{thread}/runs", json=body)).json()
        path = f"/threads/{thread}/runs/{run['run_id']}/stream"
        host, _, port = site.url.removeprefix("http://").partition(":")
        _, deaf = await asyncio.open_connection(host, int(port))
        deaf.write(f"GET /api{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        readers = [asyncio.create_task(api.get(path)) for _ in range(50)]
        await scripted.until(lambda model: model.in_flight > 0)

        assert (await api.get(f"{site.url}/health")).status_code == 200
        gate.set()
        async with asyncio.timeout(60):
            streams = await asyncio.gather(*readers)
        deaf.close()

    assert len({stream.text for stream in streams}) == 1
    assert parse_sse(streams[0].text)[-1][0] == "end"
