"""The page is served when it is there, and what is not there is named."""

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from deerflow.gateway.errors import handle_errors
from deerflow.gateway.page import serve_page


@pytest.fixture
def client(tmp_path: Path) -> httpx.AsyncClient:
    """Return a client of an app with one route, whose page is in `static` once somebody builds it."""
    app = FastAPI()
    handle_errors(app)

    @app.get("/api/things")
    async def things() -> list[str]:
        return ["one"]

    serve_page(app, tmp_path / "static")
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_a_page_that_is_built_later_is_there_after_a_reload(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    before = await client.get("/")
    elsewhere = await client.get("/threads/1")
    (tmp_path / "static").mkdir()
    (tmp_path / "static/index.html").write_text("the page")
    after = await client.get("/")

    assert (before.status_code, "make install" in before.text) == (200, True)
    assert elsewhere.status_code == 404
    assert (after.status_code, after.text) == (200, "the page")
    assert (await client.get("/threads/1")).text == "the page"
    for answer in (before, after):
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_a_route_that_does_not_exist_is_named(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/api/nope")
    wrong = await client.delete("/api/things")

    assert (unknown.status_code, wrong.status_code) == (404, 405)
    assert unknown.json() == {
        "detail": "Not Found: there is no GET /api/nope here; /openapi.json lists all routes"
    }
    assert "there is no DELETE /api/things here" in wrong.json()["detail"]
    assert "GET" in wrong.headers["allow"]


async def test_a_route_says_what_it_takes_and_answers_those_who_want_no_body(
    client: httpx.AsyncClient,
) -> None:
    whole = await client.get("/api/things")
    head = await client.head("/api/things")
    wrong = await client.post("/api/things", json={})

    assert (head.status_code, head.headers["content-type"]) == (200, whole.headers["content-type"])
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
    assert (await client.post("/api/nope", json={})).status_code == 404
    assert (await client.head("/api/nope")).status_code == 404
