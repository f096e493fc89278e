"""MCP over HTTP: streamable HTTP and the older server-sent events, with limits on every response; OAuth."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from typing_extensions import override

from deerflow.addresses import ALLOW_CIDRS, Network, checked_addresses
from deerflow.config.extensions import McpOAuthSettings, McpServerSettings
from deerflow.domain.json_counter import JsonCounter
from deerflow.errors import McpError
from deerflow.mcp.base import Limits
from deerflow.mcp.bounds import CutStream, EventCounter
from deerflow.pinned_http import PinnedTransport

CONNECT_SECONDS = 30
_PLAIN = "identity"
_SESSION_HEADER = "mcp-session-id"


class HttpTransport:
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
            async with self._connect() as (incoming, outgoing):
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
    async def _connect(self) -> AsyncIterator[TransportStreams]:
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
            transport=PinnedTransport(self._look_up) if is_checked else None,
            trust_env=not is_checked,  # a proxy would resolve the name again
            headers={**self._settings.headers, "Accept-Encoding": _PLAIN},
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=self._silence_seconds),
            event_hooks={"response": [self._check_response]},
            auth=self._auth,
        )

    async def _look_up(self, host: str, port: int) -> list[str]:
        return await checked_addresses(host, port, allowed=self._networks or (), setting=ALLOW_CIDRS)

    async def _check_response(self, response: httpx2.Response) -> None:
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


DEFAULT_SECONDS = 3600.0
"""The lifetime of a token whose response does not state one."""


class TokenAuth(httpx2.Auth):
    """Adds a token to every request to one server; after a 401 it refreshes the token and retries once."""

    def __init__(self, settings: McpOAuthSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._refresh_token = settings.refresh_token
        self._header = ""
        self._good_until = 0.0
        self._fetching = asyncio.Lock()

    @override
    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        for is_last in (False, True):
            async with self._fetching:  # concurrent requests wait and reuse the new token
                if self._clock() >= self._good_until:
                    answer = yield self._token_request()
                    await answer.aread()
                    self._read_token(answer)
            sent = self._header
            request.headers["Authorization"] = sent
            response = yield request
            if response.status_code != httpx2.codes.UNAUTHORIZED or is_last:
                return
            if self._header == sent:
                self._good_until = 0.0

    def _token_request(self) -> httpx2.Request:
        settings = self._settings
        fields = {
            "grant_type": settings.grant_type,
            "client_id": settings.client_id,
            "client_secret": settings.client_secret,
            "refresh_token": self._refresh_token if settings.grant_type == "refresh_token" else None,
            "scope": settings.scope,
            "audience": settings.audience,
            **settings.extra_token_params,
        }
        form = {name: value for name, value in fields.items() if value}
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        return httpx2.Request("POST", settings.token_url, data=form, headers=headers)

    def _read_token(self, answer: httpx2.Response) -> None:
        settings = self._settings
        if not answer.is_success:
            raise McpError(f"its token could not be fetched: HTTP status {answer.status_code}")
        found = _object_in(answer)
        token = found.get(settings.token_field)
        if not isinstance(token, str) or not token:
            raise McpError(f"its token could not be fetched: the answer has no `{settings.token_field}`")
        kind = found.get(settings.token_type_field) or settings.default_token_type
        self._header = f"{'Bearer' if str(kind).lower() == 'bearer' else kind} {token}"
        lasts = _seconds(found.get(settings.expires_in_field)) - settings.refresh_skew_seconds
        self._good_until = self._clock() + max(lasts, 0)
        renewed = found.get("refresh_token")
        if isinstance(renewed, str) and renewed:
            self._refresh_token = renewed


def _object_in(answer: httpx2.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError as error:
        raise McpError("its token could not be fetched: the answer is no JSON") from error
    if not isinstance(found, dict):
        raise McpError("its token could not be fetched: the answer is no JSON object")
    return found


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return DEFAULT_SECONDS
