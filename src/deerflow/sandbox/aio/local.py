"""Container backend for Docker or Podman on this host, through their command line."""

import asyncio
import csv
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.errors import ConfigError, SandboxUnavailableError
from deerflow.sandbox.aio.backend import (
    CONTAINER_PORT,
    DEFAULT_IMAGE,
    IMAGE_USER,
    ContainerBackend,
    ContainerWish,
)
from deerflow.sandbox.paths import PathMapping

ENGINES = ("docker", "podman")
QUICK_SECONDS = 60.0
CREATE_SECONDS = 900.0
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

    @property
    @override
    def refusal(self) -> str | None:
        if self._engine is None:
            return (
                "Commands cannot run: neither docker nor podman is installed. Install one of them, or choose "
                "another sandbox.use."
            )
        return None

    @override
    async def discover(self, wish: ContainerWish) -> str | None:
        about = await self._inspect(self._name(wish.id))
        if about is None:
            return None
        origin = _labels(about).get(ORIGIN_LABEL)
        if origin != wish.origin:
            raise SandboxUnavailableError(
                f"Container {self._name(wish.id)} belongs to another installation ({origin}); give each "
                "its own sandbox.container_prefix."
            )
        port = _host_port(about)
        if not about.get("State", {}).get("Running") or port is None:
            await self.destroy(wish.id)
            return None
        return f"http://{self._host}:{port}"

    @override
    async def create(self, wish: ContainerWish) -> str:
        for port in self._ports():
            try:
                await self._cli(*self._run_words(wish, port), env=wish.environment, seconds=CREATE_SECONDS)
            except EngineError as error:
                if _is_name_taken(error) and (url := await self.discover(wish)) is not None:
                    return url
                if port and _is_port_taken(error):
                    await self.destroy(wish.id)  # the engine keeps a container that it could not publish
                    continue
                raise
            url = await self.discover(wish)
            if url is None:
                raise EngineError(
                    f"Container {self._name(wish.id)} ended right after its start; see its logs."
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

    @property
    def _is_rootless_podman(self) -> bool:
        return os.geteuid() != 0 and Path(self._engine or "").name == "podman"

    def _name(self, container_id: str) -> str:
        return f"{self._settings.container_prefix}-{container_id}"

    def _ports(self) -> list[int]:
        first = self._settings.port
        return [0] if first is None else list(range(first, min(first + PORTS_TRIED, 65536)))

    def _run_words(self, wish: ContainerWish, port: int) -> list[str]:
        words = ["run", "--detach", "--rm", "--name", self._name(wish.id)]
        words += ["--label", f"{ID_LABEL}={wish.id}", "--label", f"{ORIGIN_LABEL}={wish.origin}"]
        words += ["--label", f"{USER_LABEL}={os.geteuid()}"]
        words += ["--publish", f"{self._bind}:{port or ''}:{CONTAINER_PORT}"]
        # as the image's authors start it: its browser has its own sandbox, which needs this
        words += ["--security-opt", "seccomp=unconfined"]
        if self._is_rootless_podman:
            # map this process's user to the image's user, so that it owns the files in the container
            words += ["--userns", f"keep-id:uid={IMAGE_USER},gid={IMAGE_USER}"]
        if "limits" in self._settings.model_fields_set:
            limits = self._settings.limits
            words += ["--memory", f"{limits.memory_mb}m", "--pids-limit", str(limits.max_processes)]
        for mount in wish.mounts:
            words += ["--mount", _mount(mount)]
        for name in wish.environment:  # values go by the environment: command lines are public
            words += ["--env", name]
        return [*words, self._settings.image or DEFAULT_IMAGE]

    async def _inspect(self, name: str) -> Mapping[str, Any] | None:
        try:
            answer = await self._cli("container", "inspect", name)
        except EngineError as error:
            if "no such container" in str(error).lower():
                return None
            raise
        try:
            found = json.loads(answer)
        except ValueError as error:
            raise EngineError(f"{self._engine} inspect gave no JSON.") from error
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else None

    async def _cli(
        self, *words: str, env: Mapping[str, str] | None = None, seconds: float = QUICK_SECONDS
    ) -> str:
        if self._engine is None:
            raise EngineError(self.refusal or "")
        try:
            process = await asyncio.create_subprocess_exec(
                self._engine,
                *words,
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
            raise EngineError(f"{self._engine} {words[0]} took longer than {seconds:g}s.") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise EngineError(
                f"{self._engine} {words[0]} failed: {errors.decode(errors='replace').strip()[-800:]}"
            )
        return output.decode(errors="replace")


def resolved_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with `$NAME` values resolved from this process's environment."""
    resolved: dict[str, str] = {}
    for name, value in environment.items():
        if value.startswith("$"):
            if value[1:] not in os.environ:
                raise ConfigError(
                    f"sandbox.environment.{name}: {value} is not set; set it or remove the entry"
                )
            value = os.environ[value[1:]]
        resolved[name] = value
    return resolved


def _mount(mount: PathMapping) -> str:
    fields = ["type=bind", f"source={mount.host}", f"target={mount.virtual}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([*fields, "readonly"] if mount.read_only else fields)
    return line.getvalue()


def _labels(about: Mapping[str, Any]) -> Mapping[str, str]:
    return (about.get("Config") or {}).get("Labels") or {}


def _host_port(about: Mapping[str, Any]) -> str | None:
    ports = (about.get("NetworkSettings") or {}).get("Ports") or {}
    bindings = ports.get(f"{CONTAINER_PORT}/tcp") or []
    return bindings[0].get("HostPort") if bindings else None


def _is_name_taken(error: EngineError) -> bool:
    return "already in use by" in str(error).lower()


def _is_port_taken(error: EngineError) -> bool:
    text = str(error).lower()
    return "port is already allocated" in text or "address already in use" in text
