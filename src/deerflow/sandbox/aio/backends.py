"""Container backends: Docker or Podman on this host, or a Kubernetes cluster through the provisioner."""

import asyncio
import csv
import hashlib
import io
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.connection_errors import connection_reason
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError, SandboxUnavailableError
from deerflow.sandbox.paths import PathMapping

CONTAINER_PORT = 8080
IMAGE_USER = 1000
"""User id of commands in the image; files that a root server writes are chowned to it."""
DEFAULT_IMAGE = "ghcr.io/agent-infra/sandbox:latest"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Specification of a container."""

    id: str
    """The same in every process."""
    user_id: str
    thread_id: str
    origin: str
    """The thread's folder on this host: distinguishes installations that use the same thread id."""
    mounts: Sequence[PathMapping] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, folders: ThreadFolders, mounts: Sequence[PathMapping], environment: Mapping[str, str]
    ) -> Self:
        """Return the specification of a thread's container; variables `$NAME` are those of this process."""
        user = folders.root.parent.parent.name  # {user}/threads/{thread}
        name = hashlib.sha256(f"{user}:{folders.thread_id}".encode()).hexdigest()[:16]
        variables = dict(environment)
        for key, value in environment.items():
            if value.startswith("$"):
                if value[1:] not in os.environ:
                    raise ConfigError(
                        f"sandbox.environment.{key}: {value} is not set; set it or remove the entry"
                    )
                variables[key] = os.environ[value[1:]]
        return cls(name, user, folders.thread_id, str(folders.root), mounts, variables)


class ContainerBackend(ABC):
    """Starts, discovers and stops containers by id."""

    refusal: str | None = None
    """Why no container can be started, with the fix; None when one can."""

    @abstractmethod
    async def discover(self, spec: ContainerSpec) -> str | None:
        """Return the address of a running container for `spec`, whichever process started it."""

    @abstractmethod
    async def create(self, spec: ContainerSpec) -> str:
        """Start a container and return its address; it may not respond yet."""

    @abstractmethod
    async def destroy(self, container_id: str) -> None:
        """Stop and remove a container; a missing one is not an error."""

    @abstractmethod
    async def running(self) -> list[str]:
        """Return the ids of DeerFlow's running containers."""

    async def aclose(self) -> None:
        """Close connections; containers keep running."""
        return


ENGINES = ("docker", "podman")
ENGINE_SECONDS = 60.0
ENGINE_CREATE_SECONDS = 900.0
"""Long because the first start downloads the image."""
PORTS_TRIED = 100
ID_LABEL = "deerflow.sandbox"
ORIGIN_LABEL = "deerflow.origin"
USER_LABEL = "deerflow.user"
"""Label with the system user whose processes share the container's lock files."""
LOOPBACK = "127.0.0.1"


class EngineError(SandboxUnavailableError):
    """The engine's command failed; the message contains its error output."""

    code = "container_engine"


class LocalContainerBackend(ContainerBackend):
    """Runs containers with the `docker` or `podman` found on PATH.

    Commands in the container have network access, which the image's own services need; use the `isolated`
    tier where that matters.
    """

    def __init__(self, settings: SandboxSettings, *, engine: str | None = None) -> None:
        self._settings = settings
        self._engine = engine or next((found for name in ENGINES if (found := shutil.which(name))), None)
        self._host = os.environ.get("DEER_FLOW_SANDBOX_HOST", LOOPBACK)
        default_bind = LOOPBACK if self._host in (LOOPBACK, "localhost") else "0.0.0.0"
        self._bind = os.environ.get("DEER_FLOW_SANDBOX_BIND_HOST", default_bind)
        if self._engine is None:
            self.refusal = (
                "Commands cannot run: neither docker nor podman is installed. Install one of them, or choose "
                "another sandbox.use."
            )

    @override
    async def discover(self, spec: ContainerSpec) -> str | None:
        about = await self._inspect(self._name(spec.id))
        if about is None:
            return None
        origin = ((about.get("Config") or {}).get("Labels") or {}).get(ORIGIN_LABEL)
        if origin != spec.origin:
            raise SandboxUnavailableError(
                f"Container {self._name(spec.id)} belongs to another installation ({origin}); give each "
                "its own sandbox.container_prefix."
            )
        ports = (about.get("NetworkSettings") or {}).get("Ports") or {}
        port = (ports.get(f"{CONTAINER_PORT}/tcp") or [{}])[0].get("HostPort")
        if not about.get("State", {}).get("Running") or port is None:
            await self.destroy(spec.id)
            return None
        return f"http://{self._host}:{port}"

    @override
    async def create(self, spec: ContainerSpec) -> str:
        first = self._settings.port
        for port in [0] if first is None else range(first, min(first + PORTS_TRIED, 65536)):
            try:
                await self._cli(
                    *self._run_argv(spec, port), env=spec.environment, seconds=ENGINE_CREATE_SECONDS
                )
            except EngineError as error:
                text = str(error).lower()
                if "already in use by" in text and (url := await self.discover(spec)) is not None:
                    return url
                if port and ("port is already allocated" in text or "address already in use" in text):
                    await self.destroy(spec.id)  # the engine keeps a container that it could not publish
                    continue
                raise
            url = await self.discover(spec)
            if url is None:
                raise EngineError(
                    f"Container {self._name(spec.id)} ended right after its start; see its logs."
                )
            return url
        raise EngineError(f"No free port from {self._settings.port} on for a sandbox container.")

    @override
    async def destroy(self, container_id: str) -> None:
        try:
            await self._cli("rm", "--force", "--volumes", self._name(container_id))
        except EngineError as error:
            if "no such container" not in str(error).lower():
                raise

    @override
    async def running(self) -> list[str]:
        listing = await self._cli(
            "ps", "--filter", f"label={USER_LABEL}={os.geteuid()}", "--format", "{{.Names}}"
        )
        prefix = self._name("")
        return [name.removeprefix(prefix) for name in listing.split() if name.startswith(prefix)]

    def _name(self, container_id: str) -> str:
        return f"{self._settings.container_prefix}-{container_id}"

    def _run_argv(self, spec: ContainerSpec, port: int) -> list[str]:
        argv = ["run", "--detach", "--rm", "--name", self._name(spec.id)]
        argv += ["--label", f"{ID_LABEL}={spec.id}", "--label", f"{ORIGIN_LABEL}={spec.origin}"]
        argv += ["--label", f"{USER_LABEL}={os.geteuid()}"]
        argv += ["--publish", f"{self._bind}:{port or ''}:{CONTAINER_PORT}"]
        # as the image's authors start it: its browser has its own sandbox, which needs this
        argv += ["--security-opt", "seccomp=unconfined"]
        if os.geteuid() != 0 and Path(self._engine or "").name == "podman":
            # map this process's user to the image's user, so that it owns the files in the container
            argv += ["--userns", f"keep-id:uid={IMAGE_USER},gid={IMAGE_USER}"]
        if "limits" in self._settings.model_fields_set:
            limits = self._settings.limits
            argv += ["--memory", f"{limits.memory_mb}m", "--pids-limit", str(limits.max_processes)]
        for mount in spec.mounts:
            argv += ["--mount", _mount(mount)]
        for name in spec.environment:  # values go by the environment: command lines are public
            argv += ["--env", name]
        return [*argv, self._settings.image or DEFAULT_IMAGE]

    async def _inspect(self, name: str) -> Mapping[str, Any] | None:
        try:
            response = await self._cli("container", "inspect", name)
        except EngineError as error:
            if "no such container" in str(error).lower():
                return None
            raise
        try:
            found = json.loads(response)
        except ValueError as error:
            raise EngineError(f"{self._engine} inspect gave no JSON.") from error
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else None

    async def _cli(
        self, *argv: str, env: Mapping[str, str] | None = None, seconds: float = ENGINE_SECONDS
    ) -> str:
        if self._engine is None:
            raise EngineError(self.refusal or "")
        try:
            process = await asyncio.create_subprocess_exec(
                self._engine,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **(env or {})},
            )
        except OSError as error:
            raise EngineError(f"{self._engine} cannot be started: {error.strerror}.") from error
        try:
            async with asyncio.timeout(seconds):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise EngineError(f"{self._engine} {argv[0]} took longer than {seconds:g}s.") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise EngineError(
                f"{self._engine} {argv[0]} failed: {errors.decode(errors='replace').strip()[-800:]}"
            )
        return output.decode(errors="replace")


def _mount(mount: PathMapping) -> str:
    fields = ["type=bind", f"source={mount.host}", f"target={mount.virtual}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([*fields, "readonly"] if mount.read_only else fields)
    return line.getvalue()


POD_CREATE_SECONDS = 120.0
CALL_SECONDS = 15.0


class RemoteSandboxBackend(ContainerBackend):
    """Requests sandbox pods from the provisioner service."""

    def __init__(self, settings: SandboxSettings) -> None:
        if not settings.provisioner_url:
            raise ConfigError("sandbox.provisioner_url is missing: give the provisioner's address")
        self._url = f"{settings.provisioner_url.rstrip('/')}/api/sandboxes"
        self._key = settings.provisioner_api_key
        self._image = settings.image
        self._http: aiohttp.ClientSession | None = None

    @override
    async def discover(self, spec: ContainerSpec) -> str | None:
        response = await self._request("GET", f"/{spec.id}")
        return _address(response) if response is not None else None

    @override
    async def create(self, spec: ContainerSpec) -> str:
        body: dict[str, Any] = {
            "sandbox_id": spec.id,
            "thread_id": spec.thread_id,
            "user_id": spec.user_id,
            "environment": dict(spec.environment),
        }
        if self._image:
            body["image"] = self._image
        response = await self._request("POST", "", body=body, seconds=POD_CREATE_SECONDS)
        url = _address(response) if response is not None else None
        if url is None:
            raise SandboxUnavailableError("The provisioner started a sandbox but named no address for it.")
        return url

    @override
    async def destroy(self, container_id: str) -> None:
        await self._request("DELETE", f"/{container_id}")

    @override
    async def running(self) -> list[str]:
        response = await self._request("GET", "") or {}
        return [
            str(container["sandbox_id"])
            for container in response.get("sandboxes", ())
            if container.get("sandbox_id")
        ]

    @override
    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        seconds: float = CALL_SECONDS,
    ) -> Mapping[str, Any] | None:
        """Return the provisioner's response body; None when the sandbox does not exist (404)."""
        if self._http is None:
            self._http = aiohttp.ClientSession(headers={"X-API-Key": self._key} if self._key else None)
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._http.request(
                method, self._url + path, json=body, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status == 404:
                    return None
                if response.status >= 400:
                    raise SandboxUnavailableError(_refused(response.status, await response.text()))
                payload = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise SandboxUnavailableError(
                f"The provisioner at {self._url} does not answer ({connection_reason(error)}); "
                "see that it runs."
            ) from error
        return payload if isinstance(payload, dict) else {}


def _address(response: Mapping[str, Any]) -> str | None:
    if response.get("status") in ("Failed", "Succeeded", "Terminating", "NotFound"):
        return None
    url = response.get("sandbox_url")
    return url if isinstance(url, str) and url else None


def _refused(status: int, text: str) -> str:
    if status in (401, 403):
        return "The provisioner refused our key; set sandbox.provisioner_api_key to its PROVISIONER_API_KEY."
    return f"The provisioner could not do it (status {status}): {text[:500]}"
