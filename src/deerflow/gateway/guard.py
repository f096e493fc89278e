"""Protects a gateway without login against requests from foreign web pages.

A foreign page may make the user's browser send requests to this host: by a name that resolves to loopback
(visible in the Host header), or by a form or script (visible in the Origin header).

Behind a proxy the page's address is in X-Forwarded-Host. A page cannot forge its Origin, nor send that header
to a foreign origin: the browser sends a preflight request, which we refuse. So an Origin counts as ours if
the request was sent to it, at this server or at the proxy, and the proxy's name is loopback, or the operator
trusts the proxy.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_WEBSOCKET = "WEBSOCKET"
"""A WebSocket has no method, is exempt from the browser's same-origin policy, and may write."""
_ADDRESS = re.compile(r"(\[[0-9a-f:.]+\]|[^\s\[\]:/?#@,\\%*]+)(?::(\d{1,5}))?", re.IGNORECASE)
_ORIGIN = re.compile(r"(https?)://(.+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Host name and port from a header; the port is None if the scheme implies it."""

    name: str
    port: int | None

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.name)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of the page that sent a request."""

    address: Address
    default_port: int

    def is_at(self, address: Address) -> bool:
        """Return whether the page is served at `address`; all loopback names are equal."""
        here = self.address
        is_same_name = here.name == address.name or (here.is_loopback and address.is_loopback)
        return is_same_name and (here.port or self.default_port) == (address.port or self.default_port)


class LocalGuard:
    """Answers 403 to requests with a foreign Host, and to writes from a foreign Origin."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        checks_host: bool,
        origins: Sequence[str] = (),
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        """Wrap `app`.

        Args:
            origins: Origins of other sites that may write.
            trusted_proxies: Peers whose X-Forwarded-Host is trusted, whatever it names.
        """
        self._app = app
        self._checks_host = checks_host
        self._origins = tuple(origin for origin in map(parse_origin, origins) if origin)
        self._trusted_proxies = trusted_proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            method = scope.get("method", _WEBSOCKET)
            is_reading = method in _READING and not _stops_a_run(scope)
            reason = self._refusal(headers, is_reading=is_reading, is_trusted=self._is_trusted(scope))
            if reason:
                await JSONResponse({"detail": reason}, 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_trusted(self, scope: Scope) -> bool:
        client = scope.get("client")
        try:
            peer = ipaddress.ip_address(client[0]) if client else None
        except ValueError:  # a socket without an IP address
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped:  # a dual-stack socket
            peer = peer.ipv4_mapped
        return peer is not None and any(peer in network for network in self._trusted_proxies)

    def _refusal(self, headers: Headers, *, is_reading: bool, is_trusted: bool) -> str | None:
        if self._checks_host and (reason := self._foreign_name(headers, is_trusted)):
            return reason
        origins = headers.getlist("origin")
        if is_reading:
            return None
        if not origins:
            # A foreign page's image or link has no Origin, but the browser sends Sec-Fetch-Site.
            is_foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
            return "A page of another origin may not do this." if is_foreign else None
        origin = parse_origin(origins[0]) if len(origins) == 1 else None
        if origin and (origin in self._origins or self._is_own(origin, headers, is_trusted)):
            return None
        shown = ", ".join(origins)[:100]
        return f"Origin '{shown}' may not write here; add it to GATEWAY_CORS_ORIGINS to allow it."

    def _foreign_name(self, headers: Headers, is_trusted: bool) -> str | None:
        """Return why the Host or X-Forwarded-Host of the request is refused; None if both are served."""
        host = _host(headers)
        if host is None or not self._is_served(host):
            shown = ", ".join(headers.getlist("host"))[:100]
            return (
                f"Host '{shown}' is not served: this gateway listens on loopback without login. "
                "Open it as http://localhost or http://127.0.0.1."
            )
        forwarded = _listed(headers.getlist("x-forwarded-host"))
        names = [parse_address(name) for name in forwarded]
        if is_trusted or all(name is not None and self._is_served(name) for name in names):
            return None
        shown = ", ".join(forwarded)[:100]
        return (
            f"X-Forwarded-Host '{shown}' is not served: this gateway listens on loopback "
            "without login. Add the page's origin to GATEWAY_CORS_ORIGINS, or the proxy's address to "
            "GATEWAY_TRUSTED_PROXIES if it lets only known people through."
        )

    def _is_served(self, address: Address) -> bool:
        return address.is_loopback or any(origin.is_at(address) for origin in self._origins)

    def _is_own(self, origin: Origin, headers: Headers, is_trusted: bool) -> bool:
        """Return whether a page was loaded from this server, directly or through a proxy."""
        host = _host(headers)
        if host is not None and origin.is_at(host):
            # The host of a listed origin may be spoofed by anyone on the network path to it.
            return host.is_loopback or not self._checks_host
        forwarded = _listed(headers.getlist("x-forwarded-host"))
        if forwarded:
            page = parse_address(forwarded[0]) if len(forwarded) == 1 else None
            return page is not None and origin.is_at(page) and (is_trusted or page.is_loopback)
        # For WebSockets some proxies forward the port only.
        ports = _listed(headers.getlist("x-forwarded-port"))
        page = parse_address(f"localhost:{ports[-1]}") if ports else None
        return page is not None and origin.is_at(page)


def _stops_a_run(scope: Scope) -> bool:
    """Return whether disconnecting from this GET request would cancel a run, which makes it a write."""
    return any(
        name == "cancel_on_disconnect" for name, _ in parse_qsl(scope["query_string"].decode("latin-1"))
    )


def parse_address(text: str) -> Address | None:
    """Parse `name:port`, without the brackets of IPv6 addresses; None if it is something else."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    name, port = match[1].lower().strip("[]"), int(match[2]) if match[2] else None
    return Address(name, port) if port is None or 0 < port < 65536 else None


def parse_origin(text: str) -> Origin | None:
    """Parse an Origin header; None for `null` and everything that no browser sends."""
    match = _ORIGIN.fullmatch(text.strip().rstrip("/"))
    address = parse_address(match[2]) if match else None
    if match is None or address is None:
        return None
    default = _DEFAULT_PORTS[match[1].lower()]
    return Origin(Address(address.name, None if address.port == default else address.port), default)


def _host(headers: Headers) -> Address | None:
    hosts = headers.getlist("host")
    return parse_address(hosts[0]) if len(hosts) == 1 else None


def _listed(values: Sequence[str]) -> list[str]:
    """Split header values that proxies may have joined into comma-separated lists."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def is_loopback(host: str) -> bool:
    """Return whether `host` is only reachable from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
