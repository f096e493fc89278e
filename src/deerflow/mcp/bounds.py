"""Keeps a server's messages small enough to be parsed on the event loop.

A message of a few megabytes can hold hundreds of thousands of JSON values, and parsing them takes seconds. So
values are counted while the bytes arrive, before parsing, and lists that would be validated item by item are
truncated.
"""

import re
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.client._transport import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from deerflow.domain.json_counter import JsonCounter
from deerflow.mcp.base import Limits

Incoming = SessionMessage | Exception

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_UNCHECKED = frozenset({"structuredContent", "_meta"})
"""Fields of a result that are not validated."""


class EventCounter:
    """Counts the JSON values of each server-sent event separately."""

    def __init__(self) -> None:
        self._event = JsonCounter()
        self._held = b""
        self.count = 0
        """The largest number of values in one event so far."""

    def feed(self, piece: bytes) -> None:
        """Count the next chunk of bytes."""
        piece = self._held + piece
        ended = piece.rstrip(b"\r\n")
        self._held = piece[len(ended) :]  # only the next byte shows whether these newlines end an event
        first, *others = _BLANK_LINE.split(ended)
        self._count(first)
        for event in others:
            self._event = JsonCounter()
            self._count(event)

    def _count(self, piece: bytes) -> None:
        self._event.feed(piece)
        self.count = max(self.count, self._event.count)


def cut(message: JSONRPCMessage, limits: Limits) -> JSONRPCMessage | None:
    """Truncate a message's lists to about `limits.items`; return None if it must be dropped."""
    match message:
        case JSONRPCResponse(result=dict() as result):
            message.result = {key: _shortened(key, value, limits.items) for key, value in result.items()}
        case JSONRPCRequest(params=dict() as params) | JSONRPCNotification(params=dict() as params):
            if _size(params, limits.items) > limits.items:
                return None  # no valid request or notification to a client is that large
    return message


def _shortened(key: str, value: Any, most: int) -> Any:
    match value:
        case list() if key not in _UNCHECKED:
            return value[: most + 1]  # one more, so that the excess is detected later
        case dict() if key not in _UNCHECKED and _size(value, most) > most:
            return {}
    return value


def _size(value: Any, enough: int) -> int:
    """Return the number of values below `value`; counting stops above `enough`."""
    count, waiting = 0, [value]
    while waiting and count <= enough:
        item = waiting.pop()
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        count += len(inner)
        waiting += inner
    return count


class CutStream:
    """Wraps an SDK transport's receive stream and truncates its messages."""

    def __init__(self, stream: ReadStream[Incoming], limits: Limits) -> None:
        self._stream = stream
        self._limits = limits

    @property
    def last_context(self) -> Any:
        """An attribute that the SDK reads for each message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """Return the next message."""
        while True:
            item = await self._stream.receive()
            if isinstance(item, Exception) or cut(item.message, self._limits) is not None:
                return item

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
