"""Serves the gateway with uvicorn, with limits on the size of headers and on read times."""

import asyncio
from typing import Any

import uvicorn
from fastapi import FastAPI
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
"""How long a client may take to send the headers of a request."""
BODY_PAUSE_SECONDS = 120.0
"""How long a client may pause while sending the body of a request."""
_KEEP_ALIVE_SECONDS = 75


class BoundedHttp(HttpToolsProtocol):
    """Answers 400 to oversized headers, and closes connections that send too slowly.

    The parser itself limits neither size nor time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        """Bytes of a head that is not complete yet."""
        self._is_in_body = False
        self._deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for(HEAD_SECONDS)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_body:  # a trailer after the body could pass for a header that a proxy checked
            super().on_header(name, value)

    def _wait_for(self, seconds: float) -> None:
        """Close the connection unless data arrives within `seconds`."""
        self._stop_waiting()
        self._deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self._is_in_body and self.flow.read_paused:  # we paused reading: the client is not at fault
            self._wait_for(BODY_PAUSE_SECONDS)
        elif not self.transport.is_closing():
            self.transport.close()

    @override
    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        if self._is_in_body:
            self._wait_for(BODY_PAUSE_SECONDS)
        elif self._deadline is None:
            self._wait_for(HEAD_SECONDS)
        super().data_received(data)
        if self._is_in_body:
            self._head_bytes = 0
        elif self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

    @override
    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._wait_for(BODY_PAUSE_SECONDS)
        if sum(len(name) + len(value) for name, value in self.headers) > MOST_HEAD_BYTES:
            raise ValueError("headers too large")  # the parser reports it as an invalid request
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._head_bytes = 0
        self._stop_waiting()
        super().on_message_complete()


def server_config(app: FastAPI, *, grace_seconds: int) -> uvicorn.Config:
    """Return the uvicorn configuration; open streams may delay a shutdown by `grace_seconds`."""
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the guard checks the real peer, not the one that a header claims
        timeout_graceful_shutdown=grace_seconds,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
