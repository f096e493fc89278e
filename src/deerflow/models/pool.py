"""Pool of keep-alive connections to model servers, shared by all models of one factory; selects proxies."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import cached_property
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import Protocol, TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
import certifi

KEEP_ALIVE_SECONDS = 60
T = TypeVar("T", bound="Closable")
NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class Closable(Protocol):
    """An object that holds connections."""

    async def aclose(self) -> None:
        """Close the connections."""


class SessionPool:
    """One HTTP session per event loop, opened on first use.

    Embedders may run DeerFlow on several loops in sequence. A connection belongs to the loop that opened
    it, so a session is never reused on another loop.
    """

    def __init__(self, *, env: Mapping[str, str] = NO_ENVIRONMENT) -> None:
        self._env = env
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._shared: dict[str, Closable] = {}
        self._proxies: dict[str, str | None] = {}

    async def session(self) -> aiohttp.ClientSession:
        """Return the session of the running loop."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            # No limit: the callers bound the number of concurrent calls.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
            session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=1 << 18
            )
            self._sessions[loop] = session
            await self._forget_dead_loops()  # after the assignment: concurrent callers get the same session
        return session

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy that the environment variables configure for `url`."""
        if url not in self._proxies:
            self._proxies[url] = proxy_for(url, self._env)
        return self._proxies[url]

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """TLS context that trusts `SSL_CERT_FILE` if it is set, else certifi's certificates."""
        return ssl.create_default_context(cafile=self._env.get("SSL_CERT_FILE") or certifi.where())

    def prepare(self) -> None:
        """Do ahead, in a thread, what would block the event loop when the first client is created."""
        import httpcore2  # noqa: PLC0415 - slow to load

        _ = httpcore2, self.tls

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Return the object called `name`, created by `make` on first use and closed with the pool."""
        if name not in self._shared:
            self._shared[name] = make()
        return cast(T, self._shared[name])

    async def aclose(self) -> None:
        """Close every connection."""
        while self._shared:
            await self._shared.popitem()[1].aclose()
        loop = asyncio.get_running_loop()
        session = self._sessions.pop(loop, None)
        if session is not None:
            await session.close()
        await self._forget_dead_loops()

    async def _forget_dead_loops(self) -> None:
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            await self._sessions.pop(loop).close()


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` select for `url`."""
    parts = urlsplit(url)
    proxy = _variable(env, f"{parts.scheme}_proxy") or _variable(env, "all_proxy")
    host = parts.hostname or ""
    if not proxy or _is_exempt(host, parts.port, _variable(env, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _is_exempt(host: str, port: int | None, no_proxy: str) -> bool:
    for entry in filter(None, (part.strip().lower() for part in no_proxy.split(","))):
        if entry == "*":
            return True
        name, _, wanted_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
        if wanted_port and wanted_port != str(port):
            continue
        if _is_within(host, name):
            return True
    return False


def _is_within(host: str, name: str) -> bool:
    suffix = name.removeprefix("*").removeprefix(".")
    if host == suffix or host.endswith(f".{suffix}"):
        return True
    try:
        return ip_address(host) in ip_network(name.strip("[]"), strict=False)
    except ValueError:  # one of them is a host name, not an IP address
        return False
