"""Stands in for a cluster's API server: pods and services of the core API, each pod a stand-in image."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from . import engine

NOW = "2026-01-01T00:00:00Z"
KINDS = {"pods": "Pod", "services": "Service"}


class Api:
    """Keeps objects in memory; a pod's container is started like the engine's."""

    def __init__(self, logs: Path) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.requests: list[str] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.lingering: dict[str, int] = {}
        """How often a removed pod is still seen, by name."""
        self.refuse: tuple[int, str] | None = None
        self._logs = logs
        self._listeners: dict[str, tuple[int, socket.socket]] = {}
        """The port of each pod, and who listens there until the pod does."""

    def application(self) -> web.Application:
        app = web.Application()
        folder, one = "/api/v1/namespaces/{space}/{kind}", "/api/v1/namespaces/{space}/{kind}/{name}"
        app.router.add_post(folder, self.create)
        app.router.add_get(folder, self.list)
        app.router.add_get(one, self.read)
        app.router.add_delete(one, self.delete)
        return app

    async def create(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        body = await request.json()
        kind, name = request.match_info["kind"], body["metadata"]["name"]
        if (kind, name) in self.objects:
            return status(409, "AlreadyExists", f'{kind} "{name}" already exists')
        if name not in self._listeners:
            listener = engine.listen()
            self._listeners[name] = listener.getsockname()[1], listener
        port, listener = self._listeners[name]
        body["metadata"] |= {"namespace": request.match_info["space"], "uid": name, "creationTimestamp": NOW}
        if kind == "pods":
            self._run(name, body["spec"], listener)
            body["status"] = {"phase": "Pending"}
        else:
            body["spec"]["clusterIP"] = "10.96.0.7"
            if body["spec"]["type"] == "NodePort":
                body["spec"]["ports"][0]["nodePort"] = port
            body["status"] = {"loadBalancer": {}}
        self.objects[kind, name] = body
        return web.json_response(body, status=201)

    async def read(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        kind, name = request.match_info["kind"], request.match_info["name"]
        found = self.objects.get((kind, name))
        if found is None:
            return status(404, "NotFound", f'{kind} "{name}" not found')
        answer = web.json_response(found)
        if kind == "pods":
            found["status"] = {"phase": "Running"}
            if name in self.lingering:
                self.lingering[name] -= 1
                if self.lingering[name] <= 0:
                    del self.lingering[name], self.objects[kind, name]
        return answer

    async def list(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        wanted = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
        kind = request.match_info["kind"]
        items = [
            found
            for (of, _), found in self.objects.items()
            if of == kind and wanted.items() <= found["metadata"].get("labels", {}).items()
        ]
        return web.json_response(
            {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "metadata": {}, "items": items}
        )

    async def delete(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        kind, name = request.match_info["kind"], request.match_info["name"]
        found = self.objects.get((kind, name))
        if found is None:
            return status(404, "NotFound", f'{kind} "{name}" not found')
        if kind == "pods" and self.lingering.get(name):
            found["metadata"]["deletionTimestamp"] = NOW
        else:
            del self.objects[kind, name]
        if kind == "pods":
            self.stop(name)
        return web.json_response(found)

    def stop(self, name: str) -> None:
        """End a pod's container."""
        if name in self._listeners:
            self._listeners.pop(name)[1].close()
        process = self.processes.pop(name, None)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _run(self, name: str, spec: Mapping[str, Any], listener: socket.socket) -> None:
        container = spec["containers"][0]
        folders = {
            volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume
        }
        mounts = []
        for mount in container["volumeMounts"]:
            if mount["name"] in folders:
                Path(folders[mount["name"]]).mkdir(parents=True, exist_ok=True)
                entry = {"source": folders[mount["name"]], "target": mount["mountPath"]}
                mounts.append(entry | ({"readonly": ""} if mount.get("readOnly") else {}))
        environment = {entry["name"]: entry["value"] for entry in container.get("env") or ()}
        self.processes[name] = engine.start(listener, mounts, environment, self._logs / f"{name}.log")

    def _refused(self, request: web.Request) -> web.Response | None:
        self.requests.append(f"{request.method} {request.path}")
        if request.headers.get("Authorization") != "Bearer cluster-token":
            return status(401, "Unauthorized", "Unauthorized")
        return status(*self.refuse, self.refuse[1]) if self.refuse else None


def status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"message": message, "reason": reason, "code": code}
    return web.json_response(body, status=code)
