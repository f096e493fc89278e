"""Requests as bytes on a socket: trailers, and clients that take their time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from fastapi import FastAPI, Request

from deerflow.gateway import server
from deerflow.gateway.server import server_config

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve an app that tells the headers it got, and connect to it."""
    app = FastAPI()

    @app.post("/")
    async def echo(request: Request) -> dict[str, str]:
        await request.body()
        return dict(request.headers)

    http = uvicorn.Server(server_config(app, grace_seconds=1))
    http.config.port = 0
    running = asyncio.create_task(http.serve())
    while not http.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = http.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        http.should_exit = True
        await running


async def test_a_trailer_never_becomes_a_header() -> None:
    async with serving() as (reader, writer):
        writer.write(
            HEAD + b"Transfer-Encoding: chunked\r\nX-Head: yes\r\nConnection: close\r\n\r\n"
            b"1\r\na\r\n0\r\nX-Trailer: forged\r\nOrigin: forged\r\n\r\n"
        )
        answer = (await reader.read()).decode()

    assert answer.startswith("HTTP/1.1 200")
    assert "x-head" in answer
    assert "forged" not in answer


@pytest.mark.parametrize(
    "begun",
    [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\nabc"],
)
async def test_a_request_that_stops_coming_is_given_up(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(server, "BODY_PAUSE_SECONDS", 0.1)
    async with serving() as (reader, writer):
        writer.write(begun)

        async with asyncio.timeout(60):
            assert b"200 OK" not in await reader.read()


async def test_a_second_request_on_a_connection_is_answered() -> None:
    async with serving() as (reader, writer):
        for _ in range(2):
            writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"}")
