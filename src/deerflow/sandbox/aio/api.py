"""Speaks the HTTP API of the all-in-one sandbox image."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from deerflow.errors import SandboxError

QUICK_SECONDS = 15.0
"""How long an answer may take that waits for nothing."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class ContainerGoneError(SandboxError):
    """The container does not answer any more."""

    code = "container_gone"


class NoSuchRouteError(SandboxError):
    """The image is too old, or too new, for this call."""

    code = "no_such_route"


class RefusedError(SandboxError):
    """The container answered that it cannot do it."""

    code = "container_refused"


class AioApi:
    """One container's API."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http

    async def is_ready(self) -> bool:
        """Tell whether the container answers."""
        try:
            async with self._http.get(f"{self.url}/v1/sandbox", timeout=_seconds(5)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def call(
        self, path: str, body: Mapping[str, Any], *, seconds: float = QUICK_SECONDS
    ) -> Mapping[str, Any]:
        """Post `body` to `path` and return the `data` of the answer."""
        try:
            async with self._http.post(f"{self.url}{path}", json=body, timeout=_seconds(seconds)) as answer:
                payload = await _json(answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ContainerGoneError(_gone(error)) from error
        if answer.status == 404 and payload.get("detail") == "Not Found":
            raise NoSuchRouteError(f"the sandbox image has no {path}; use a newer image")
        data = payload.get("data")
        if answer.status >= 400 or payload.get("success") is False or not isinstance(data, dict):
            raise RefusedError(_reason(payload, answer.status))
        return data

    async def send(self, path: str, body: Mapping[str, Any]) -> None:
        """Post `body` to `path`, whatever comes back: for calls that tidy up."""
        try:
            async with self._http.post(f"{self.url}{path}", json=body, timeout=_seconds(5)) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return

    async def download(self, path: str, *, max_bytes: int) -> bytes:
        """Return the bytes of a file in the container, at most one more than `max_bytes`."""
        try:
            async with self._http.get(
                f"{self.url}/v1/file/download", params={"path": path}, timeout=_seconds(120)
            ) as answer:
                if answer.status >= 400:
                    raise RefusedError(_reason(await _json(answer), answer.status))
                return await _at_most(answer, max_bytes + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ContainerGoneError(_gone(error)) from error


async def wait_until_ready(api: AioApi, *, seconds: float) -> None:
    """Wait for a container that was just started."""
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
        payload = json.loads(body)
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


def _gone(error: Exception) -> str:
    return f"the sandbox container does not answer ({type(error).__name__}); run it again to start a new one"


def _seconds(total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total)
