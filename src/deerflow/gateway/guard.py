"""Keeps strangers out of a gateway that nobody has to log in to.

A page from elsewhere may make the user's own browser send requests to this host: by a name that
resolves to loopback (the Host header gives it away), or by a form or script (the Origin header does).
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_WEBSOCKET = "WEBSOCKET"
"""A socket has no method, is not bound to its page's origin by the browser, and may write."""


class LocalGuard:
    """Answers 403 to requests under a foreign Host name, and to writes of a foreign Origin."""

    def __init__(self, app: ASGIApp, *, checks_host: bool, origins: Sequence[str] = ()) -> None:
        """Args: `origins` are the pages elsewhere that may write."""
        self._app = app
        self._checks_host = checks_host
        self._origins = frozenset(origin.rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in ("http", "websocket"):
            reason = self._refusal(Headers(scope=scope), scope.get("method", _WEBSOCKET))
            if reason:
                await JSONResponse({"detail": reason}, 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, method: str) -> str | None:
        host = headers.get("host", "")
        if self._checks_host and not is_loopback(host_name(host)):
            return (
                f"Host '{host[:100]}' is not served: this gateway listens on loopback without login. "
                "Open it as http://localhost or http://127.0.0.1."
            )
        origin = headers.get("origin")
        if origin is None or method in _READING or origin.rstrip("/") in self._origins:
            return None
        if host and origin.partition("://")[2] == host:
            return None
        return f"Origin '{origin[:100]}' may not write here; add it to GATEWAY_CORS_ORIGINS to allow it."


def host_name(netloc: str) -> str:
    """Return the name in `name:port`, brackets of IPv6 addresses removed."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:  # brackets that do not match
        return ""


def is_loopback(host: str) -> bool:
    """Tell whether `host` can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
