"""A server that answers every request with the same bytes, for answers that no decent server gives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def raw_server(
    body: bytes, *, kind: str = "application/json", status: str = "200 OK", stays_open: bool = False
) -> AsyncIterator[str]:
    """Yield the base URL of a server; with `stays_open` no answer ends before the server does."""
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        sizes = [int(line.partition(b":")[2]) for line in head if line.startswith(b"content-length")]
        await reader.readexactly(sum(sizes))
        writer.write(
            f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n".encode() + body
        )
        await writer.drain()
        if stays_open:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        over.set()
        server.close()
        await server.wait_closed()
