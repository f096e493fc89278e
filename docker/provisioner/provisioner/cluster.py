"""Starts, finds and removes sandbox pods by the Kubernetes API."""

import asyncio
from dataclasses import dataclass
from typing import Any

from kubernetes.aio.client import ApiException, CoreV1Api, V1Pod, V1Service

from provisioner.manifests import APP_LABEL, PORT, Wish, name_of, pod, service
from provisioner.settings import Settings

REMOVAL_SECONDS = 60.0
NOT_FOUND = 404
CONFLICT = 409


class ClusterError(Exception):
    """The cluster could not do it; the message has its reason."""


@dataclass(frozen=True, slots=True)
class SandboxState:
    """A sandbox as the cluster knows it."""

    sandbox_id: str
    status: str
    """The pod's phase, `Terminating` while it goes."""
    url: str | None


class Cluster:
    """The sandboxes of one namespace."""

    def __init__(self, api: CoreV1Api, settings: Settings) -> None:
        self._api = api
        self._settings = settings

    async def create(self, wish: Wish) -> SandboxState:
        """Start a sandbox; one that is there already is returned."""
        found = await self.find(wish.sandbox_id)
        if found is not None and found.status not in ("Failed", "Succeeded", "Terminating"):
            return found
        if found is not None:
            await self._removed_for_good(wish.sandbox_id)
        space = self._settings.namespace
        body_of_pod = V1Pod.model_validate(pod(wish, self._settings))
        body_of_service = V1Service.model_validate(service(wish, self._settings))
        await _made(self._api.create_namespaced_pod(space, body_of_pod), "pod")
        try:
            await _made(self._api.create_namespaced_service(space, body_of_service), "service")
        except ClusterError:
            await self.remove(wish.sandbox_id)  # a pod that nobody can reach is only a cost
            raise
        created = await self.find(wish.sandbox_id)
        if created is None:
            raise ClusterError(f"sandbox {wish.sandbox_id} vanished right after its start")
        return created

    async def find(self, sandbox_id: str) -> SandboxState | None:
        """Return one sandbox; None when there is no such pod."""
        name, space = name_of(sandbox_id), self._settings.namespace
        found = await _or_none(self._api.read_namespaced_pod(name, space))
        if found is None:
            return None
        reached = await _or_none(self._api.read_namespaced_service(name, space))
        return SandboxState(sandbox_id, _status(found), self._url(name, reached))

    async def list(self) -> list[SandboxState]:
        """Return all sandboxes of the namespace."""
        space, ours = self._settings.namespace, f"app={APP_LABEL}"
        pods = await _asked(self._api.list_namespaced_pod(space, label_selector=ours))
        services = await _asked(self._api.list_namespaced_service(space, label_selector=ours))
        by_name = {found.metadata.name: found for found in services.items}
        return [
            SandboxState(
                found.metadata.labels["sandbox-id"],
                _status(found),
                self._url(found.metadata.name, by_name.get(found.metadata.name)),
            )
            for found in pods.items
        ]

    async def remove(self, sandbox_id: str) -> bool:
        """Remove a sandbox; False when there was none."""
        name, space = name_of(sandbox_id), self._settings.namespace
        await _or_none(self._api.delete_namespaced_service(name, space))
        gone = await _or_none(self._api.delete_namespaced_pod(name, space, grace_period_seconds=0))
        return gone is not None

    async def _removed_for_good(self, sandbox_id: str) -> None:
        """Remove a sandbox and wait until its name is free again."""
        await self.remove(sandbox_id)
        try:
            async with asyncio.timeout(REMOVAL_SECONDS):
                while await self.find(sandbox_id) is not None:  # noqa: ASYNC110 — the cluster wakes nobody
                    await asyncio.sleep(0.3)
        except TimeoutError as error:
            raise ClusterError(f"sandbox {sandbox_id} is still ending; try again") from error

    async def is_reachable(self) -> bool:
        """Tell whether the cluster answers and lets us look at our pods."""
        try:
            await _asked(self._api.list_namespaced_pod(self._settings.namespace, limit=1))
        except ClusterError:
            return False
        return True

    def _url(self, name: str, reached: Any) -> str | None:
        if reached is None:
            return None
        if not self._settings.is_outside:
            return f"http://{name}.{self._settings.namespace}.svc.cluster.local:{PORT}"
        port = next((entry.node_port for entry in reached.spec.ports if entry.node_port), None)
        return f"http://{self._settings.node_host}:{port}" if port else None


def _status(found: Any) -> str:
    if found.metadata.deletion_timestamp is not None:
        return "Terminating"
    return (found.status.phase if found.status else None) or "Pending"


async def _asked(call: Any) -> Any:
    try:
        return await call
    except ApiException as error:
        raise ClusterError(f"the cluster refused ({error.status}): {error.reason}") from error
    except OSError as error:
        raise ClusterError(f"the cluster does not answer: {error}") from error


async def _or_none(call: Any) -> Any:
    try:
        return await call
    except ApiException as error:
        if error.status == NOT_FOUND:
            return None
        raise ClusterError(f"the cluster refused ({error.status}): {error.reason}") from error
    except OSError as error:
        raise ClusterError(f"the cluster does not answer: {error}") from error


async def _made(call: Any, kind: str) -> None:
    try:
        await call
    except ApiException as error:
        if error.status != CONFLICT:  # another request was quicker: that is as good
            raise ClusterError(f"the cluster made no {kind} ({error.status}): {error.reason}") from error
    except OSError as error:
        raise ClusterError(f"the cluster does not answer: {error}") from error
