"""The pod and the service of one sandbox, as Kubernetes reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.settings import Settings

PORT = 8080
APP_LABEL = "deer-flow-sandbox"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for; every part was checked at the door."""

    sandbox_id: str
    thread_id: str
    user_id: str
    image: str
    environment: Mapping[str, str] = field(default_factory=dict)


def name_of(sandbox_id: str) -> str:
    """Return the name that pod and service of a sandbox share."""
    return f"sandbox-{sandbox_id}"


def pod(wish: Wish, settings: Settings) -> dict[str, Any]:
    """Return the pod of a sandbox."""
    volumes, mounts = _user_data(wish, settings)
    skills_volumes, skills_mounts = _skills(settings)
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,  # a sandbox has no business with the cluster
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 5,
        "containers": [_container(wish, settings, [*mounts, *skills_mounts])],
        "volumes": [*volumes, *skills_volumes],
    }
    if settings.image_pull_secret:
        spec["imagePullSecrets"] = [{"name": settings.image_pull_secret}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(wish.sandbox_id), "spec": spec}


def service(wish: Wish, settings: Settings) -> dict[str, Any]:
    """Return the service by which DeerFlow reaches the pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(wish.sandbox_id),
        "spec": {
            "type": "NodePort" if settings.is_outside else "ClusterIP",
            "selector": {"sandbox-id": wish.sandbox_id},
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
        },
    }


def _metadata(sandbox_id: str) -> dict[str, Any]:
    return {"name": name_of(sandbox_id), "labels": {"app": APP_LABEL, "sandbox-id": sandbox_id}}


def _container(wish: Wish, settings: Settings, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    size = {"cpu": settings.cpu, "memory": settings.memory}
    return {
        "name": "sandbox",
        "image": wish.image,
        "ports": [{"containerPort": PORT}],
        "env": [{"name": name, "value": value} for name, value in sorted(wish.environment.items())],
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": size},
        "securityContext": {"privileged": False},
        "readinessProbe": {
            "httpGet": {"path": "/v1/sandbox", "port": PORT},
            "periodSeconds": 2,
            "failureThreshold": 60,
        },
    }


def _user_data(wish: Wish, settings: Settings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mount the thread's own folder only, as DeerFlow's home has it."""
    below = f"users/{wish.user_id}/threads/{wish.thread_id}/user-data"
    mount: dict[str, Any] = {"name": "user-data", "mountPath": "/mnt/user-data"}
    if settings.user_data_claim:
        volume = {"name": "user-data", "persistentVolumeClaim": {"claimName": settings.user_data_claim}}
        return [volume], [{**mount, "subPath": below}]
    if settings.user_data_path:
        folder = {"path": f"{settings.user_data_path.rstrip('/')}/{below}", "type": "DirectoryOrCreate"}
        return [{"name": "user-data", "hostPath": folder}], [mount]
    return [{"name": "user-data", "emptyDir": {}}], [mount]


def _skills(settings: Settings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    mount = {"name": "skills", "mountPath": "/mnt/skills", "readOnly": True}
    if settings.skills_claim:
        claim = {"claimName": settings.skills_claim, "readOnly": True}
        return [{"name": "skills", "persistentVolumeClaim": claim}], [mount]
    if settings.skills_path:
        folder = {"path": settings.skills_path, "type": "Directory"}
        return [{"name": "skills", "hostPath": folder}], [mount]
    return [], []
