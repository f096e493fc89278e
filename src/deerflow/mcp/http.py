"""MCP over HTTP: streamable HTTP and the older server-sent events, with limits on every response."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from typing_extensions import override

from deerflow.addresses import ALLOW_CIDRS, Network, checked_addresses
from deerflow.config.extensions import McpServerSettings
from deerflow.domain.json_counter import JsonCounter
from deerflow.errors import AddressRefusedError
from deerflow.mcp.base import Limits
from deerflow.mcp.bounds import CutStream, EventCounter
from deerflow.mcp.oauth import TokenAuth

CONNECT_SECONDS = 30
MAX_ADDRESSES = 4
_PLAIN = "identity"
_SESSION_HEADER = "mcp-session-id"


class Web:
    """The HTTP transport to one server."""

    def __init__(
        self,
        settings: McpServerSettings,
        *,
        silence_seconds: float,
        limits: Limits,
        networks: tuple[Network, ...] | None = None,
    ) -> None:
        """Args: `networks`, the allowed networks beyond the public internet; None for no restriction."""
        self._settings = settings
        self._networks = networks
        self._silence_seconds = silence_seconds
        self._limits = limits
        self._problem: str | None = None
        oauth = settings.oauth
        self._auth = TokenAuth(oauth) if oauth is not None and oauth.enabled else None
        self.status: int | None = None
        """The status of the last response to a POST, if it was an error."""
        self.has_session = False
        """Whether the server created a session, which it can lose."""
        self.over = asyncio.Event()
        """Set when the connection has ended."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TransportStreams]:
        """Connect, and yield the streams of incoming and outgoing messages."""
        try:
            async with self._transport() as (incoming, outgoing):
                yield CutStream(incoming, self._limits), outgoing
        finally:
            self.over.set()

    async def why(self) -> str:
        """Return why the connection ended."""
        refused = None if self.status is None else f"it answered with HTTP status {self.status}"
        return self._problem or refused or "the connection failed"

    def take_problem(self) -> str | None:
        """Return why a response was cut off, once; the SDK only reports that none came."""
        problem, self._problem = self._problem, None
        return problem

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[TransportStreams]:
        url = self._settings.url or ""
        if self._settings.type == "sse":
            async with sse_client(url, httpx_client_factory=self._sse_client) as streams:
                yield streams
            return
        most = self._limits.message_bytes
        async with (
            self._client() as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=most) as streams,
        ):
            yield streams

    def _sse_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Return DeerFlow's client to the SSE transport, which would create its own."""
        return self._client()

    def _client(self) -> httpx2.AsyncClient:
        is_checked = self._networks is not None
        return httpx2.AsyncClient(
            transport=CheckedTransport(self._networks or ()) if is_checked else None,
            trust_env=not is_checked,  # a proxy would resolve the name again
            headers={**self._settings.headers, "Accept-Encoding": _PLAIN},
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=self._silence_seconds),
            event_hooks={"response": [self._look]},
            auth=self._auth,
        )

    async def _look(self, response: httpx2.Response) -> None:
        """Record an error status, and limit the size of the response."""
        if response.request.method == "POST":
            self.status = response.status_code if response.status_code >= 400 else None
            self.has_session = self.has_session or _SESSION_HEADER in response.headers
        if response.headers.get("content-encoding", _PLAIN) != _PLAIN:
            self._problem = "it packs its answers though it was asked not to"
            raise httpx2.DecodingError(self._problem, request=response.request)
        response.stream = _Bounded(response, self._limits, self._note)

    def _note(self, problem: str) -> None:
        self._problem = problem


class CheckedTransport(httpx2.AsyncHTTPTransport):
    """Connects only to allowed addresses, and to exactly the address that was checked."""

    def __init__(self, networks: tuple[Network, ...]) -> None:
        super().__init__(trust_env=False)
        self._networks = networks

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await checked_addresses(url.host, port, allowed=self._networks, setting=ALLOW_CIDRS)
        except (AddressRefusedError, OSError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        # The host name stays in the Host header and in the TLS handshake.
        extensions = {**request.extensions, "sni_hostname": url.host}
        last = httpx2.ConnectError(f"{url.host} has no address", request=request)
        for address in found[:MAX_ADDRESSES]:
            dialled = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await super().handle_async_request(dialled)
            except httpx2.ConnectError as error:
                last = error
        raise last


class _Bounded(httpx2.AsyncByteStream):
    """A response body with limits; in an event stream each event is limited separately."""

    def __init__(self, response: httpx2.Response, limits: Limits, on_excess: Callable[[str], None]) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._request = response.request
        self._limits = limits
        self._on_excess = on_excess
        # The SDK itself limits the bytes of an event.
        self._has_events = "text/event-stream" in response.headers.get("content-type", "")
        self._counter = EventCounter() if self._has_events else JsonCounter()
        self._bytes = 0

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._bytes += len(chunk)
            self._counter.feed(chunk)
            problem = None
            if self._bytes > self._limits.message_bytes and not self._has_events:
                problem = f"it answered with more than {self._limits.message_bytes} bytes"
            elif self._counter.count > self._limits.message_parts:
                problem = f"it answered with more than {self._limits.message_parts} parts"
            if problem is not None:
                self._on_excess(problem)
                raise httpx2.ReadError(problem, request=self._request)
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()
