"""Serve `/metrics` on loopback, for processes without another HTTP server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deerflow.errors import ConfigError
from deerflow.observability.meters import Meters

_HOST = "127.0.0.1"
_NAMES = frozenset({"127.0.0.1", "localhost"})
_MAX_HEAD_BYTES = 16 * 1024
_REQUEST_SECONDS = 5


@asynccontextmanager
async def serve_metrics(port: int | None, numbers: Meters) -> AsyncIterator[int | None]:
    """Serve `GET /metrics` on loopback for the length of a block; yield the port, None when disabled."""
    if port is None:
        yield None
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                writer.write(_answer(await reader.readuntil(b"\r\n\r\n"), numbers))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # TimeoutError is an OSError too; a client that sends no valid HTTP gets no response
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, _HOST, port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {_HOST}:{port}: {error.strerror or error}; choose another --metrics-port"
        ) from error
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def _answer(head: bytes, numbers: Meters) -> bytes:
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
    host = fields.get("host", "").strip().rpartition(":")[0] or fields.get("host", "").strip()
    if host not in _NAMES:  # DNS rebinding: a foreign page's host name that resolves to this machine
        return _response("403 Forbidden", "text/plain", b"This is served to this machine only.\n")
    if lines[0].split(" ")[:2] != ["GET", "/metrics"]:
        return _response("404 Not Found", "text/plain", b"There is only GET /metrics here.\n")
    from deerflow.observability import exposition  # noqa: PLC0415 - takes time and memory before it is needed

    return _response("200 OK", exposition.CONTENT_TYPE, exposition.render(numbers))


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
