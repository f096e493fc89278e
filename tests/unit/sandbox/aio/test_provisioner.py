"""The provisioner as its own process, on a stand-in cluster, alone and behind the container sandbox."""

import asyncio
import importlib.util
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from deerflow.config import Paths
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxError, SandboxUnavailableError

from .conftest import Engine, MakeProvider
from .standin.engine import free_port
from .standin.kubernetes_api import Api

PROVISIONER = Path(__file__).parents[4] / "docker" / "provisioner"
KEY = "k" * 32
ID = "0123456789abcdef"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kubernetes") is None,
    reason="the provisioner needs its own packages: pip install -r docker/provisioner/requirements.txt",
)


@dataclass(frozen=True)
class Service:
    """A running provisioner and the cluster behind it."""

    url: str
    home: Path
    cluster: Api

    async def ask(self, method: str, path: str = "", *, key: str = KEY, **options: Any) -> tuple[int, Any]:
        url, headers = f"{self.url}/api/sandboxes{path}", {"X-API-Key": key}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, url, **options) as answer,
        ):
            return answer.status, await answer.json()

    def thread(self, name: str) -> ThreadFolders:
        return Paths(self.home).thread("ann", name)


@contextmanager
def running_cluster(logs: Path) -> Iterator[tuple[Api, str]]:
    """Run the stand-in cluster in a thread, so that one serves all tests of this file."""
    api = Api(logs)
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(api.application())
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield api, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()


def kubeconfig(path: Path, server: str) -> Path:
    cluster = {"name": "c", "cluster": {"server": server}}
    user = {"name": "u", "user": {"token": "cluster-token"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **parts}))
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("provisioner")
    with running_cluster(folder) as (cluster, server):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROVISIONER),
            "PROVISIONER_API_KEY": KEY,
            "KUBECONFIG": str(kubeconfig(folder / "kubeconfig", server)),
            "NODE_HOST": "127.0.0.1",
            "USERDATA_HOST_PATH": str(folder / "home"),
            "HOST": "127.0.0.1",
        }
        process, port = started(environment)
        with process:
            try:
                yield Service(f"http://127.0.0.1:{port}", folder / "home", cluster)
            finally:
                process.terminate()


def started(environment: Mapping[str, str]) -> tuple["subprocess.Popen[bytes]", int]:
    """Start the provisioner, again if somebody else takes its port before it does."""
    for _ in range(5):
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "provisioner"], env={**environment, "PORT": str(port)}
        )
        if is_ready(port, process):
            return process, port
        process.kill()
        process.wait()
    raise AssertionError("the provisioner did not start")


def is_ready(port: int, process: "subprocess.Popen[bytes]") -> bool:
    """Wait until it answers; False when it has ended or another one answers."""
    until = time.monotonic() + 90
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
                return bool(answer.read() == b'{"status":"ok"}' and process.poll() is None)
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    return False


@pytest.fixture
def service(running: Service, engine: Engine) -> Iterator[Service]:
    """The provisioner with an empty cluster."""
    yield running
    cluster = running.cluster
    for name in list(cluster.processes):
        cluster.stop(name)
    cluster.objects.clear()
    cluster.lingering.clear()
    cluster.refuse = None


async def test_sandboxes_are_made_found_listed_and_removed(service: Service) -> None:
    status, made = await service.ask("POST", json={"sandbox_id": ID, "thread_id": "t1"})
    assert (status, made["sandbox_id"], made["status"]) == (200, ID, "Pending")
    again = await service.ask("POST", json={"sandbox_id": ID, "thread_id": "t1"})
    assert again == (200, {**made, "status": "Running"})
    assert await service.ask("GET", f"/{ID}") == again
    assert await service.ask("GET") == (200, {"sandboxes": [again[1]], "count": 1})

    removed = [(await service.ask("DELETE", f"/{ID}"))[1]["removed"] for _ in range(2)]

    assert removed == [True, False]
    assert (await service.ask("GET", f"/{ID}"))[0] == 404
    assert service.cluster.objects == {}


async def test_a_pod_gets_the_threads_folder_and_no_token(service: Service) -> None:
    body = {"sandbox_id": ID, "thread_id": "t1", "user_id": "ann", "environment": {"MOOD": "good"}}

    await service.ask("POST", json=body)

    spec = service.cluster.objects["pods", f"sandbox-{ID}"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["env"] == [{"name": "MOOD", "value": "good"}]
    assert spec["volumes"] == [
        {
            "name": "user-data",
            "hostPath": {
                "path": f"{service.home}/users/ann/threads/t1/user-data",
                "type": "DirectoryOrCreate",
            },
        }
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sandbox_id": "../../etc", "thread_id": "t1"},
        {"sandbox_id": ID, "thread_id": "../t1"},
        {"sandbox_id": ID, "thread_id": "t1", "user_id": "a/b"},
        {"sandbox_id": ID, "thread_id": "t1", "environment": {"BAD NAME": "x"}},
        {"sandbox_id": ID, "thread_id": "t1", "environment": {"A": "x" * 9000}},
        {"sandbox_id": ID, "thread_id": "t1", "environment": {f"A{n}": "x" for n in range(65)}},
    ],
)
async def test_malformed_requests_reach_no_cluster(service: Service, body: dict[str, Any]) -> None:
    service.cluster.requests.clear()

    status, _ = await service.ask("POST", json=body)

    assert (status, service.cluster.requests) == (422, [])


async def test_only_the_key_opens_the_door(service: Service) -> None:
    service.cluster.requests.clear()

    for method, path in (("GET", ""), ("GET", f"/{ID}"), ("DELETE", f"/{ID}"), ("POST", "")):
        for key in ("", "wrong"):
            assert (await service.ask(method, path, key=key))[0] == 401

    assert service.cluster.requests == []


async def test_a_foreign_image_is_refused(service: Service) -> None:
    body = {"sandbox_id": ID, "thread_id": "t1", "image": "example.org/miner"}

    status, answer = await service.ask("POST", json=body)

    assert status == 403
    assert "SANDBOX_ALLOWED_IMAGES" in answer["detail"]


async def test_the_clusters_refusal_is_passed_on(service: Service) -> None:
    service.cluster.refuse = (403, "Forbidden")

    status, answer = await service.ask("POST", json={"sandbox_id": ID, "thread_id": "t1"})

    assert status == 502
    assert "refused (403)" in answer["detail"]


async def test_a_pod_that_is_still_ending_is_waited_for(service: Service) -> None:
    await service.ask("POST", json={"sandbox_id": ID, "thread_id": "t1"})
    service.cluster.lingering[f"sandbox-{ID}"] = 3
    await service.ask("DELETE", f"/{ID}")

    status, made = await service.ask("POST", json={"sandbox_id": ID, "thread_id": "t1"})

    assert (status, made["status"]) == (200, "Pending")


async def test_commands_run_in_pods_on_the_threads_files(
    service: Service, make_provider: MakeProvider
) -> None:
    provider = make_provider(
        provisioner_url=service.url,
        provisioner_api_key=KEY,
        thread_data_mounts=True,
        environment={"MOOD": "good"},
    )
    async with provider.acquire(service.thread("t1")) as sandbox:
        await sandbox.write_file("a.txt", "from the host\n")

        result = await sandbox.execute_command(
            "cat a.txt; echo $MOOD; echo out > /mnt/user-data/outputs/b.txt", timeout=60
        )

        assert result.output == "from the host\ngood\n"
        assert await sandbox.read_file("/mnt/user-data/outputs/b.txt") == "out\n"
    assert (await provider.self_test()).ok
    await provider.aclose()
    assert service.cluster.objects == {}


async def test_a_wrong_key_and_a_dead_provisioner_are_explained(
    service: Service, make_provider: MakeProvider
) -> None:
    wrong = make_provider(provisioner_url=service.url, provisioner_api_key="x", thread_data_mounts=True)
    dead = make_provider(provisioner_url=f"http://127.0.0.1:{free_port()}", thread_data_mounts=True)

    async with wrong.acquire(service.thread("t1")) as sandbox:
        with pytest.raises(SandboxUnavailableError, match="provisioner_api_key"):
            await sandbox.execute_command("true", timeout=60)
    async with dead.acquire(service.thread("t1")) as sandbox:
        with pytest.raises(SandboxError, match="does not answer"):
            await sandbox.execute_command("true", timeout=60)


async def test_without_a_key_it_does_not_start() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROVISIONER)}

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner"), env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()

    assert process.returncode == 1
    assert b"PROVISIONER_API_KEY must have at least 16 characters" in errors
