"""Readers of event streams for tests that count bytes: frames as they came, in order."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_read=60)
END = "end"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it went over the wire."""

    kind: str
    id: str
    raw: bytes

    @property
    def seq(self) -> int:
        return int(self.id.rpartition("-")[2])

    @property
    def data(self) -> Any:
        return json.loads(next(line[6:] for line in self.raw.splitlines() if line.startswith(b"data: ")))


def frame_of(raw: bytes) -> Frame | None:
    """Return the event in a piece between blank lines; None for a sign of life."""
    if raw.startswith(b":"):
        return None
    fields = dict(line.split(b": ", 1) for line in raw.splitlines())
    return Frame(fields[b"event"].decode(), fields[b"id"].decode(), raw)


async def frames_of(response: aiohttp.ClientResponse) -> AsyncIterator[Frame]:
    """Yield the events of a stream; what a broken connection left unfinished is not one."""
    buffer = b""
    async for piece in response.content.iter_any():
        *whole, buffer = (buffer + piece).split(b"\n\n")
        for raw in whole:
            frame = frame_of(raw)
            if frame is not None:
                yield frame


async def read_stream(
    session: aiohttp.ClientSession, url: str, *, after: str | None = None, most: int | None = None
) -> list[Frame]:
    """Read a stream from behind an event, to its end or up to `most` events."""
    headers = {} if after is None else {"Last-Event-ID": after}
    frames: list[Frame] = []
    async with session.get(url, headers=headers) as response:
        assert response.status == 200, await response.text()
        async for frame in frames_of(response):
            frames.append(frame)
            if most is not None and len(frames) >= most:
                return frames
    return frames


def joined(frames: list[Frame]) -> bytes:
    """Return events as the bytes that carried them."""
    return b"".join(frame.raw + b"\n\n" for frame in frames)


async def deaf_reader(url: str, *, receive_bytes: int = 4096) -> socket.socket:
    """Ask for a stream on a connection that nobody will ever read from."""
    address = urlsplit(url)
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(deaf, (address.hostname, address.port))
    path = f"{address.path}?{address.query}" if address.query else address.path
    await loop.sock_sendall(deaf, f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
    return deaf


def drop(reader: socket.socket) -> None:
    """End a connection as a crash of its client would, with a reset."""
    with contextlib.suppress(OSError):
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    reader.close()
