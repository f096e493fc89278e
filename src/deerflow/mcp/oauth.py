"""OAuth tokens for MCP servers: fetched on first use, cached, and refreshed before they expire."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2
from typing_extensions import override

from deerflow.config.extensions import McpOAuthSettings
from deerflow.errors import McpError

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
                    self._take(answer)
            sent = self._header
            request.headers["Authorization"] = sent
            response = yield request
            if response.status_code != httpx2.codes.UNAUTHORIZED or is_last:
                return
            if self._header == sent:
                self._good_until = 0.0

    def _token_request(self) -> httpx2.Request:
        said = self._settings
        fields = {
            "grant_type": said.grant_type,
            "client_id": said.client_id,
            "client_secret": said.client_secret,
            "refresh_token": self._refresh_token if said.grant_type == "refresh_token" else None,
            "scope": said.scope,
            "audience": said.audience,
            **said.extra_token_params,
        }
        form = {name: value for name, value in fields.items() if value}
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        return httpx2.Request("POST", said.token_url, data=form, headers=headers)

    def _take(self, answer: httpx2.Response) -> None:
        said = self._settings
        if not answer.is_success:
            raise McpError(f"its token could not be fetched: HTTP status {answer.status_code}")
        found = _object_in(answer)
        token = found.get(said.token_field)
        if not isinstance(token, str) or not token:
            raise McpError(f"its token could not be fetched: the answer has no `{said.token_field}`")
        kind = found.get(said.token_type_field) or said.default_token_type
        self._header = f"{'Bearer' if str(kind).lower() == 'bearer' else kind} {token}"
        lasts = _seconds(found.get(said.expires_in_field)) - said.refresh_skew_seconds
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
