"""Stops a request body that is larger than anything we would take, before it fills memory or disk."""

from collections.abc import Callable

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TOO_LARGE = 413
_MOST_DRAINED = 64 * 1024 * 1024


class BodyLimit:
    """Answers 413 to bodies above `limit(path)` bytes, announced or not."""

    def __init__(self, app: ASGIApp, *, limit: Callable[[str], int]) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with an eye on its size."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, headers = self._limit(scope["path"]), Headers(scope=scope)
        announced = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may believe the other one, and take the rest of this body for somebody's request.
            await _answer(400, "send Content-Length or Transfer-Encoding, not both")(scope, receive, send)
            return
        if announced.isdigit() and int(announced) > most:
            await _drain(receive)
            await _refuse(most)(scope, receive, send)
            return
        counter = _Counter(receive, send, most)
        try:
            await self._app(scope, counter.receive, counter.send)
        except _BodyTooLargeError:
            if not counter.has_answered:
                await _refuse(most)(scope, receive, send)


class _BodyTooLargeError(HTTPException):
    """More came than was announced or allowed; FastAPI passes on this kind only, from where it reads."""

    def __init__(self, most: int) -> None:
        super().__init__(_TOO_LARGE, _too_large(most), {"Connection": "close"})


class _Counter:
    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._most = receive, send, most
        self._seen = 0
        self.has_answered = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._most:
            raise _BodyTooLargeError(self._most)
        return message

    async def send(self, message: Message) -> None:
        self.has_answered = True
        await self._send(message)


async def _drain(receive: Receive) -> None:
    """Read some of what comes: a client that is cut off while it sends never sees the answer."""
    seen = 0
    while seen < _MOST_DRAINED:
        message = await receive()
        seen += len(message.get("body", b""))
        if not message.get("more_body"):
            return


def _refuse(most: int) -> JSONResponse:
    return _answer(_TOO_LARGE, _too_large(most))


def _answer(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers={"Connection": "close"})


def _too_large(most: int) -> str:
    return f"the body is larger than {most:,} bytes: send less; files go to /threads/{{thread_id}}/uploads"
