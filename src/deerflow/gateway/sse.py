"""Streams events as server-sent events; all events that are ready are sent in one chunk."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from deerflow.domain import END, StreamEvent
from deerflow.observability.watch import Watch
from deerflow.runtime import is_wanted

HEARTBEAT = b": heartbeat\n\n"
_HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}


def frame(event: StreamEvent) -> bytes:
    """Encode one event as an SSE frame."""
    return b"event: %b\ndata: %b\nid: %b\n\n" % (event.kind.encode(), event.data, event.id.encode())


class EventStream(Response):
    """Streams batches of events until the end, or until the client disconnects."""

    def __init__(
        self,
        batches: AsyncIterator[list[StreamEvent]],
        *,
        modes: frozenset[str],
        headers: Mapping[str, str],
        watch: Watch,
        on_disconnect: Callable[[], Awaitable[object]] | None = None,
        is_endless: bool = False,
    ) -> None:
        """Create a response from batches of events.

        Args:
            on_disconnect: Called when the client disconnects before the end.
            is_endless: The end of a run does not end the stream.
        """
        super().__init__(headers={**_HEADERS, **headers})
        self._batches = batches
        self._modes = modes
        self._watch = watch
        self._on_disconnect = on_disconnect
        self._is_endless = is_endless

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._watch.reading():
            await self._stream(receive, send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._stream_headers()})
        sending = asyncio.create_task(self._send_all(send))
        disconnecting = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, disconnecting), return_when=asyncio.FIRST_COMPLETED)
            has_disconnected = not sending.done()
        finally:
            for task in (sending, disconnecting):
                task.cancel()
            failure, _ = await asyncio.gather(sending, disconnecting, return_exceptions=True)
        if has_disconnected and self._on_disconnect is not None:
            await self._on_disconnect()
        if isinstance(failure, Exception):
            raise failure

    async def _send_all(self, send: Send) -> None:
        body = b""
        async for batch in self._batches:
            body = b"".join(frame(event) for event in batch if is_wanted(event.kind, self._modes))
            if batch and batch[-1].kind == END and not self._is_endless:
                break  # the last events and the end of the body are sent together
            if not batch:
                body = HEARTBEAT
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                body = b""
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _stream_headers(self) -> list[tuple[bytes, bytes]]:
        return [(name, value) for name, value in self.raw_headers if name != b"content-length"]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
