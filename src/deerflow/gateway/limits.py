"""Rejects request bodies over a limit before they fill memory or disk.

Bytes alone do not measure the cost of a body: an image is one long string, while the same number of bytes can
hold a million keys, which would block the event loop for seconds. So the values of a JSON body are counted as
it arrives, before it is parsed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deerflow.domain.json_counter import JsonCounter

_TOO_LARGE = 413
_MOST_DRAINED = 64 * 1024 * 1024
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Bound:
    """Limits for one request body."""

    most_bytes: int
    most_values: int
    """Members of arrays and objects in a JSON body."""
    most_depth: int = 100
    archive_types: Sequence[str] = ()
    """Media types of bodies that the route does not parse as JSON."""


class BodyLimit:
    """Answers 413 to bodies over `bound(method, path)`, with or without a Content-Length."""

    def __init__(self, app: ASGIApp, *, bound: Callable[[str, str], Bound]) -> None:
        self._app = app
        self._bound = bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bound, headers = self._bound(scope["method"], scope["path"]), Headers(scope=scope)
        announced = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:
            # Request smuggling: a proxy may use the other header and take the rest for a new request.
            await _answer(400, "send Content-Length or Transfer-Encoding, not both")(scope, receive, send)
            return
        if announced.isdigit() and int(announced) > bound.most_bytes:
            await _drain(receive)
            await _answer(_TOO_LARGE, _too_large(bound))(scope, receive, send)
            return
        counter = _Counter(receive, send, bound, is_json=not _is_opaque(headers, bound))
        try:
            await self._app(scope, counter.receive, counter.send)
        except _BodyRefusedError as error:
            if not counter.has_answered:
                await _answer(error.status_code, error.detail)(scope, receive, send)


class _BodyRefusedError(HTTPException):
    """The body exceeds its limit; FastAPI propagates only an `HTTPException` while it reads a body."""

    def __init__(self, detail: str, status: int = _TOO_LARGE) -> None:
        super().__init__(status, detail, {"Connection": "close"})


class _Counter:
    def __init__(self, receive: Receive, send: Send, bound: Bound, *, is_json: bool) -> None:
        self._receive, self._send, self._bound = receive, send, bound
        self._seen = 0
        self._values = JsonCounter() if is_json else None
        self.has_answered = False

    async def receive(self) -> Message:
        message = await self._receive()
        body = message.get("body", b"")
        self._seen += len(body)
        if self._seen > self._bound.most_bytes:
            raise _BodyRefusedError(_too_large(self._bound))
        if self._values is not None and body:
            if self._seen == len(body) and _is_wide(body):
                raise _BodyRefusedError("send JSON as UTF-8", status=400)
            self._count(self._values, body)
        return message

    def _count(self, values: JsonCounter, body: bytes) -> None:
        for start in range(0, len(body), _PIECE_BYTES):
            values.feed(body[start : start + _PIECE_BYTES])
            if values.count > self._bound.most_values:
                raise _BodyRefusedError(
                    f"the request's JSON has more than {self._bound.most_values:,} values; "
                    "send it in several requests"
                )
            if values.depth > self._bound.most_depth:
                raise _BodyRefusedError(
                    f"the request's JSON has more than {self._bound.most_depth} levels; nest it less deeply",
                    status=400,
                )

    async def send(self, message: Message) -> None:
        self.has_answered = True
        await self._send(message)


def _is_opaque(headers: Headers, bound: Bound) -> bool:
    """Return whether a body is a multipart form or an archive, which is not parsed as JSON."""
    kind = headers.get("content-type", "").lower()
    return kind.startswith(("multipart/form-data", *bound.archive_types))


def _is_wide(body: bytes) -> bool:
    """Return whether a text is UTF-16 or UTF-32, which Python's parser accepts but our counter does not."""
    return b"\0" in body[:4] or body.startswith((b"\xfe\xff", b"\xff\xfe"))


async def _drain(receive: Receive) -> None:
    """Read part of the body: a client that is cut off while sending never reads the response."""
    seen = 0
    while seen < _MOST_DRAINED:
        message = await receive()
        seen += len(message.get("body", b""))
        if not message.get("more_body"):
            return


def _answer(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers={"Connection": "close"})


def _too_large(bound: Bound) -> str:
    return (
        f"the body is larger than {bound.most_bytes:,} bytes: send less; "
        "files go to /threads/{thread_id}/uploads"
    )
