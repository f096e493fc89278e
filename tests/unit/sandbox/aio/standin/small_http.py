"""A small HTTP server on the standard library alone: containers of tests are to start quickly."""

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: bytes
    match: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Response:
    body: bytes
    status: int = 200
    kind: str = "application/json"


Handler = Callable[[Request], Awaitable[Response]]


def answer(data: Any, *, status: int = 200) -> Response:
    return Response(json.dumps(data).encode(), status)


class SmallServer:
    """Serves routes such as `POST /things/{id}`."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []

    def route(self, method: str, path: str, handler: Handler) -> None:
        self._routes.append((method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), handler))

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._connection, sock=listener)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._exchange(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        response = await self._answered(Request(method, parts.path, query, body, {}))
        writer.write(
            f"HTTP/1.1 {response.status} Ok\r\nContent-Type: {response.kind}\r\n"
            f"Content-Length: {len(response.body)}\r\n\r\n".encode()
        )
        writer.write(response.body)
        await writer.drain()

    async def _answered(self, request: Request) -> Response:
        for method, path, handler in self._routes:
            found = path.fullmatch(request.path)
            if found and method == request.method:
                return await handler(
                    Request(request.method, request.path, request.query, request.body, found.groupdict())
                )
        return answer({"detail": "Not Found"}, status=404)
