"""Container backend for a Kubernetes cluster, through the provisioner's HTTP API."""

from collections.abc import Mapping
from typing import Any

import aiohttp
from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.connection_errors import connection_reason
from deerflow.errors import ConfigError, SandboxUnavailableError
from deerflow.sandbox.aio.backend import ContainerBackend, ContainerWish

CREATE_SECONDS = 120.0
QUICK_SECONDS = 15.0


class RemoteSandboxBackend(ContainerBackend):
    """Requests sandbox pods from the provisioner service."""

    def __init__(self, settings: SandboxSettings) -> None:
        if not settings.provisioner_url:
            raise ConfigError("sandbox.provisioner_url is missing: give the provisioner's address")
        self._url = f"{settings.provisioner_url.rstrip('/')}/api/sandboxes"
        self._key = settings.provisioner_api_key
        self._image = settings.image
        self._http: aiohttp.ClientSession | None = None

    @property
    @override
    def refusal(self) -> str | None:
        return None

    @override
    async def discover(self, wish: ContainerWish) -> str | None:
        answer = await self._ask("GET", f"/{wish.id}")
        return _address(answer) if answer is not None else None

    @override
    async def create(self, wish: ContainerWish) -> str:
        body: dict[str, Any] = {
            "sandbox_id": wish.id,
            "thread_id": wish.thread_id,
            "user_id": wish.user_id,
            "environment": dict(wish.environment),
        }
        if self._image:
            body["image"] = self._image
        answer = await self._ask("POST", "", body=body, seconds=CREATE_SECONDS)
        url = _address(answer) if answer is not None else None
        if url is None:
            raise SandboxUnavailableError("The provisioner started a sandbox but named no address for it.")
        return url

    @override
    async def destroy(self, container_id: str) -> None:
        await self._ask("DELETE", f"/{container_id}")

    @override
    async def running(self) -> list[str]:
        answer = await self._ask("GET", "") or {}
        return [str(entry["sandbox_id"]) for entry in answer.get("sandboxes", ()) if entry.get("sandbox_id")]

    @override
    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _ask(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, seconds: float = QUICK_SECONDS
    ) -> Mapping[str, Any] | None:
        """Return the provisioner's response body; None when the sandbox does not exist (404)."""
        if self._http is None:
            self._http = aiohttp.ClientSession(headers={"X-API-Key": self._key} if self._key else None)
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._http.request(
                method, self._url + path, json=body, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status == 404:
                    return None
                if answer.status >= 400:
                    raise SandboxUnavailableError(_refused(answer.status, await answer.text()))
                payload = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise SandboxUnavailableError(
                f"The provisioner at {self._url} does not answer ({connection_reason(error)}); "
                "see that it runs."
            ) from error
        return payload if isinstance(payload, dict) else {}


def _address(answer: Mapping[str, Any]) -> str | None:
    if answer.get("status") in ("Failed", "Succeeded", "Terminating", "NotFound"):
        return None
    url = answer.get("sandbox_url")
    return url if isinstance(url, str) and url else None


def _refused(status: int, text: str) -> str:
    if status in (401, 403):
        return "The provisioner refused our key; set sandbox.provisioner_api_key to its PROVISIONER_API_KEY."
    return f"The provisioner could not do it (status {status}): {text[:500]}"
