"""Keeps what a server sends small enough to be read on the event loop.

A message of a few megabytes can hold hundreds of thousands of parts, and reading them takes seconds. So parts
are counted while the bytes arrive, before anything reads them, and lists that would be checked item by item
are cut.
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
"""Fields of a result that are taken as they are."""


class EventCounter:
    """Counts the values of each server-sent event by itself."""

    def __init__(self) -> None:
        self._event = JsonCounter()
        self._held = b""
        self.count = 0
        """The most values that one event has by now."""

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        piece = self._held + piece
        ended = piece.rstrip(b"\r\n")
        self._held = piece[len(ended) :]  # whether these end an event shows with the next byte
        first, *others = _BLANK_LINE.split(ended)
        self._count(first)
        for event in others:
            self._event = JsonCounter()
            self._count(event)

    def _count(self, piece: bytes) -> None:
        self._event.feed(piece)
        self.count = max(self.count, self._event.count)


def cut(message: JSONRPCMessage, limits: Limits) -> JSONRPCMessage | None:
    """Return a message whose lists are no longer than `limits.items`; None for one to be dropped."""
    match message:
        case JSONRPCResponse(result=dict() as result):
            message.result = {key: _shortened(key, value, limits.items) for key, value in result.items()}
        case JSONRPCRequest(params=dict() as params) | JSONRPCNotification(params=dict() as params):
            if _size(params, limits.items) > limits.items:
                return None  # nothing that a client is asked or told is that large
    return message


def _shortened(key: str, value: Any, most: int) -> Any:
    match value:
        case list() if key not in _UNCHECKED:
            return value[: most + 1]  # one more, to show that there were too many
        case dict() if key not in _UNCHECKED and _size(value, most) > most:
            return {}
    return value


def _size(value: Any, enough: int) -> int:
    """Return how many values there are below `value`, or a number above `enough`."""
    count, waiting = 0, [value]
    while waiting and count <= enough:
        item = waiting.pop()
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        count += len(inner)
        waiting += inner
    return count


class CutStream:
    """What comes from a transport of the SDK, with its messages cut."""

    def __init__(self, stream: ReadStream[Incoming], limits: Limits) -> None:
        self._stream = stream
        self._limits = limits

    @property
    def last_context(self) -> Any:
        """What the SDK looks up beside each message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """Return the next message."""
        while True:
            item = await self._stream.receive()
            if isinstance(item, Exception) or cut(item.message, self._limits) is not None:
                return item

    async def aclose(self) -> None:
        """Close the stream beneath."""
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
