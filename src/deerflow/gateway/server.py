"""How the gateway is served: uvicorn, with a bound on what comes before a request's body."""

from typing import Any

import uvicorn
from fastapi import FastAPI
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
_KEEP_ALIVE_SECONDS = 75


class BoundedHttp(HttpToolsProtocol):
    """Answers 400 to a request whose headers are larger than any honest client's.

    The parser itself would keep as much as somebody cares to send.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        """Bytes of a head that is not whole yet."""
        self._is_in_body = False

    @override
    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_body:
            self._head_bytes = 0
        elif self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

    @override
    def on_headers_complete(self) -> None:
        self._is_in_body = True
        if sum(len(name) + len(value) for name, value in self.headers) > MOST_HEAD_BYTES:
            raise ValueError("headers too large")  # the parser reports it as an invalid request
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._head_bytes = 0
        super().on_message_complete()


def server_config(app: FastAPI, *, grace_seconds: int) -> uvicorn.Config:
    """Return how to serve `app`; open streams may keep a stopping server for `grace_seconds`."""
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the guard asks who really sends, not who a header says it is
        timeout_graceful_shutdown=grace_seconds,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
