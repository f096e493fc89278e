"""Events leave as server-sent events; a reader that leaves is noticed, a failure is no reader leaving."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deerflow.domain import StreamEvent
from deerflow.gateway.sse import EventStream, frame
from deerflow.observability.watch import Watch

EVENTS = [
    StreamEvent(0, 1700, "metadata", b'{"run_id":"r"}'),
    StreamEvent(1, 1701, "values", b"{}"),
    StreamEvent(2, 1702, "messages", b"[]"),
    StreamEvent(3, 1703, "end", b"null"),
]


async def batches(*parts: list[StreamEvent] | Exception | None) -> AsyncIterator[list[StreamEvent]]:
    """Yield batches; None is a silence that never ends."""
    for part in parts:
        if isinstance(part, Exception):
            raise part
        if part is None:
            await asyncio.Event().wait()
        else:
            yield part


class Reader:
    """The server's side of a client that may leave."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.got = asyncio.Event()
        self.body = b""
        self.is_whole = False
        self.notices: list[str] = []

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.body += message.get("body", b"")
        self.is_whole = message["type"] == "http.response.body" and not message["more_body"]
        if self.body:
            self.got.set()

    async def follow(
        self, *parts: list[StreamEvent] | Exception | None, modes: tuple[str, ...] = ("values",)
    ) -> None:
        async def notice() -> None:
            self.notices.append("left")

        stream = EventStream(
            batches(*parts), modes=frozenset(modes), headers={}, watch=Watch(), on_disconnect=notice
        )
        await stream({"type": "http"}, self.receive, self.send)


def test_a_frame_has_event_data_and_id_in_this_order() -> None:
    assert frame(EVENTS[0]) == b'event: metadata\ndata: {"run_id":"r"}\nid: 1700-0\n\n'


async def test_a_reader_gets_its_modes_signs_of_life_and_the_end() -> None:
    reader = Reader()

    await reader.follow(EVENTS[:1], [], EVENTS[1:])

    assert reader.body == frame(EVENTS[0]) + b": heartbeat\n\n" + frame(EVENTS[1]) + frame(EVENTS[3])
    assert (reader.is_whole, reader.notices) == (True, [])


async def test_a_reader_that_leaves_is_noticed() -> None:
    reader = Reader()

    following = asyncio.create_task(reader.follow(EVENTS[:1], None))
    await reader.got.wait()
    reader.left.set()
    await following

    assert (reader.is_whole, reader.notices) == (False, ["left"])


async def test_a_server_that_goes_down_is_no_reader_leaving() -> None:
    reader = Reader()

    following = asyncio.create_task(reader.follow(EVENTS[:1], None))
    await reader.got.wait()
    following.cancel()

    with pytest.raises(asyncio.CancelledError):
        await following
    assert reader.notices == []


async def test_a_log_that_cannot_be_read_is_an_error_and_no_reader_leaving() -> None:
    reader = Reader()

    with pytest.raises(KeyError, match="fragment"):
        await reader.follow(EVENTS[:1], KeyError("fragment"))

    assert (reader.is_whole, reader.notices) == (False, [])
