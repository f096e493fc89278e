"""Bodies that are too large are refused: announced, lied about or not announced at all."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import Body, FastAPI, Request

from deerflow.gateway.limits import BodyLimit

MOST = 1000


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()

    @app.post("/json")
    async def take(body: dict[str, Any] = Body()) -> int:  # noqa: B008
        return len(body)

    @app.post("/form")
    async def form(request: Request) -> int:
        async with request.form() as fields:
            return len(fields)

    app.add_middleware(BodyLimit, limit=lambda path: MOST)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        yield client


async def trickle(size: int, start: bytes = b'{"a": "') -> AsyncIterator[bytes]:
    yield start
    for _ in range(size // 100):
        yield b"x" * 100
    yield b'"}'


async def test_a_body_within_the_limit_passes(client: httpx.AsyncClient) -> None:
    assert (await client.post("/json", json={"a": "x" * 900})).json() == 1
    headers = {"Content-Type": "application/json"}
    assert (await client.post("/json", content=trickle(900), headers=headers)).json() == 1


async def test_an_announced_body_above_it_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/json", json={"a": "x" * 1000})

    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert "1,000 bytes" in answer.json()["detail"]


async def test_a_body_that_keeps_coming_is_refused(client: httpx.AsyncClient) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
    as_json = await client.post("/json", content=trickle(5000), headers={"Content-Type": "application/json"})
    as_form = await client.post(
        "/form", content=trickle(5000, part), headers={"Content-Type": "multipart/form-data; boundary=b"}
    )

    for answer in (as_json, as_form):
        assert (answer.status_code, "1,000 bytes" in answer.text) == (413, True), answer.text
