"""Routes of the thread protocol over HTTP and WebSocket: commands, and the stream of a thread's events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import orjson
from fastapi import APIRouter, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from deerflow.domain import is_thread_id
from deerflow.errors import InvalidInputError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response
from deerflow.gateway.openapi import answers, request_body
from deerflow.gateway.protocol.commands import Commander, CommandError, failure, parse_command
from deerflow.gateway.protocol.events import ProtocolEvent, parse_filter
from deerflow.gateway.protocol.feed import Batches, follow_thread
from deerflow.gateway.protocol.socket import ThreadSocket
from deerflow.gateway.sse import HEARTBEAT

router = APIRouter(tags=["thread protocol"])

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_BAD_THREAD = 4422
"""Clients read a close code above 4000 as an HTTP status."""


@router.post(
    "/threads/{thread_id}/commands",
    openapi_extra=request_body("command_body"),
    **answers("CommandResult", own_errors={400: "CommandResult | Error"}),
)
async def send_command(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, request: Request
) -> Response:
    """Carry out one command of the thread protocol.

    Methods are `run.start`, `input.respond`, `subscription.subscribe`, `subscription.unsubscribe`,
    `subscription.reconnect` and `agent.getTree`. A command that fails by the protocol's rules is answered
    with status 200 and `type: error`; a body that is no command answers 400.
    docs/explanation/thread-protocol.md describes the protocol.
    """
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        return json_response({"detail": "Invalid JSON body"}, 400)
    try:
        parsed = parse_command(body)
    except CommandError as error:
        return json_response(failure(body.get("id") if isinstance(body, dict) else None, error), 400)
    return json_response(await Commander(deerflow, thread_id, user).answer(parsed))


@router.post(
    "/threads/{thread_id}/stream/events",
    openapi_extra=request_body("filter_body"),
    **answers("protocol_events", 400),
)
async def stream_thread_events(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, request: Request
) -> Response:
    """Stream the events of a thread in the thread protocol, those of later runs too, until the client leaves.

    `channels` chooses events; `since` continues after an event's number. A WebSocket at the same path takes
    commands too.
    """
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        return json_response({"detail": "Invalid JSON body"}, 400)
    if not is_thread_id(thread_id):
        return json_response({"detail": "Invalid thread ID"}, 422)
    try:
        wanted = parse_filter(body)
    except InvalidInputError as error:
        return json_response({"detail": str(error)}, 400)
    batches = follow_thread(deerflow, thread_id, user, wanted)
    return _Endless(_frames(batches), headers=_HEADERS, media_type="text/event-stream")


@router.websocket("/threads/{thread_id}/stream/events")
async def stream_socket(socket: WebSocket, thread_id: str, user: CurrentUser) -> None:
    """Take commands and deliver events on one socket."""
    await socket.accept()
    if not is_thread_id(thread_id):
        await socket.close(_BAD_THREAD, "Invalid thread ID")
        return
    state: Any = socket.app.state
    with state.deerflow.watch.reading():
        await ThreadSocket(socket, state.deerflow, thread_id, user).serve()


class _Endless(StreamingResponse):
    """A stream that ends only when the client disconnects or the server stops: it is never completed."""

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with scope["app"].state.deerflow.watch.reading():
                await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            # Only a server shutdown cancels a request, and this is the request's root. A completed response
            # would tell clients that the stream is over; this way they reconnect.
            return


async def _frames(events: Batches) -> AsyncIterator[bytes]:
    async with aclosing(events) as batches:
        async for batch in batches:
            yield b"".join(map(_frame, batch)) or HEARTBEAT


def _frame(event: ProtocolEvent) -> bytes:
    return b"event: %b\ndata: %b\nid: %d\n\n" % (event.method.encode(), event.json(), event.seq)
