"""Client of the HTTP API of the all-in-one sandbox image."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import aiohttp

from deerflow.connection_errors import connection_reason
from deerflow.errors import SandboxError

QUICK_SECONDS = 15.0
"""Timeout of calls that do not wait for a command."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class ContainerGoneError(SandboxError):
    """The container no longer responds."""

    code = "container_gone"


class NoSuchRouteError(SandboxError):
    """The image does not have this route: it is too old, or too new."""

    code = "no_such_route"


class RefusedError(SandboxError):
    """The container responded with an error."""

    code = "container_refused"


class AioApi:
    """One container's API; its responses are untrusted."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http

    async def is_ready(self) -> bool:
        """Return whether the container responds."""
        try:
            async with self._asked("GET", "/v1/sandbox", seconds=5) as answer:
                return answer.status == 200
        except ContainerGoneError:
            return False

    async def call(
        self, path: str, body: Mapping[str, Any], *, seconds: float = QUICK_SECONDS
    ) -> Mapping[str, Any]:
        """Post `body` to `path` and return the `data` of the response."""
        async with self._asked("POST", path, seconds=seconds, json=body) as answer:
            payload = await _json(answer)
        if answer.status == 404 and payload.get("detail") == "Not Found":
            raise NoSuchRouteError(f"the sandbox image has no {path}; use a newer image")
        data = payload.get("data")
        if answer.status >= 300 or payload.get("success") is False or not isinstance(data, dict):
            raise RefusedError(_reason(payload, answer.status))
        return data

    async def tidy(self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST") -> None:
        """Make a cleanup call and ignore its response and a lost connection."""
        with suppress(ContainerGoneError):
            async with self._asked(method, path, seconds=5, json=body or {}) as answer:
                await _at_most(answer, 65_536)

    async def aside(self, command: str, *, seconds: float) -> Mapping[str, Any]:
        """Run an internal command to its end in a separate session, and close that session."""
        body = {"command": command, "timeout": seconds}
        try:
            answer = await self.call(
                "/v1/bash/exec", {**body, "max_output_length": 0}, seconds=seconds + QUICK_SECONDS
            )
            await self.tidy(f"/v1/bash/sessions/{_session(answer)}/close")
        except NoSuchRouteError:
            answer = await self.call(
                "/v1/shell/exec", {**body, "truncate": False}, seconds=seconds + QUICK_SECONDS
            )
            await self.tidy(f"/v1/shell/sessions/{_session(answer)}", method="DELETE")
        return answer

    async def download(self, path: str, *, max_bytes: int) -> bytes:
        """Return a file's bytes from the container, at most `max_bytes` + 1."""
        async with self._asked("GET", "/v1/file/download", seconds=120, params={"path": path}) as answer:
            if answer.status >= 300:
                raise RefusedError(_reason(await _json(answer), answer.status))
            return await _at_most(answer, max_bytes + 1)

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, *, seconds: float, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            # no redirects: an untrusted container must not direct requests to other hosts
            async with self._http.request(
                method, f"{self.url}{path}", timeout=timeout, allow_redirects=False, **options
            ) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ContainerGoneError(
                f"the sandbox container does not answer ({connection_reason(error)}); "
                "run it again for a new one"
            ) from error


def open_http() -> aiohttp.ClientSession:
    """Create the HTTP client: no cookies, which containers would share, and no decompression bombs."""
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, headers={"Accept-Encoding": "identity"}
    )


async def wait_until_ready(api: AioApi, *, seconds: float) -> None:
    """Poll until a container responds; raise `ContainerGoneError` after `seconds`."""
    pause = 0.05
    try:
        async with asyncio.timeout(seconds):
            while not await api.is_ready():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 1.0)
    except TimeoutError as error:
        raise ContainerGoneError(
            f"the sandbox container did not answer within {seconds:g}s of its start; see its logs"
        ) from error


async def _json(answer: aiohttp.ClientResponse) -> Mapping[str, Any]:
    body = await _at_most(answer, MAX_ANSWER_BYTES)
    try:
        payload = json.loads(body) if len(body) < 1_000_000 else await asyncio.to_thread(json.loads, body)
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


async def _at_most(answer: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(65_536):
        body += chunk
        if len(body) >= most:
            return bytes(body[:most])
    return bytes(body)


def _reason(payload: Mapping[str, Any], status: int) -> str:
    reason = payload.get("message") or payload.get("detail") or f"status {status}"
    return f"the sandbox container refused: {str(reason)[:500]}"


def _session(answer: Mapping[str, Any]) -> str:
    return quote(str(answer.get("session_id") or ""), safe="")
