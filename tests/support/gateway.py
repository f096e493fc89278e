"""Real gateways for tests: inside this process for speed, or as a process of its own to be killed."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
import yaml

from deerflow.app import DeerFlow
from deerflow.config import SettingsSource
from deerflow.gateway.app import GatewayOptions, create_app
from deerflow.gateway.server import server_config

START_SECONDS = 240
END_SECONDS = 120
_WORKER_IS_UP = "DeerFlow worker "
_PORTS = (12_000, 32_000)


def write_config(home: Path, model_url: str | None, **sections: Any) -> Path:
    """Write a `config.yaml` whose model is the scripted one, and return its path."""
    # A short grace: most tests that leave a run behind do not wait for its next step.
    short = {"grace_seconds": 0.2}
    # No memory unless a test is about it: to learn, it asks the model whenever a thread is quiet.
    quiet = {"enabled": False}
    config: dict[str, Any] = {
        "sandbox": {"use": "local"},
        "run_ownership": short,
        "memory": quiet,
        **sections,
    }
    if model_url is not None:
        config.setdefault("models", [model_entry(model_url)])
    # No shipped skills unless a test is about them: a project's own folder of public skills replaces them.
    (home / "skills" / "public").mkdir(parents=True, exist_ok=True)
    path = home / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def model_entry(url: str, name: str = "scripted", **more: Any) -> dict[str, Any]:
    """Return an entry of `models` for a server that speaks as OpenAI's does."""
    entry = {"name": name, "use": "langchain_openai:ChatOpenAI", "model": name, "base_url": url}
    return {**entry, "api_key": "sk-test", "max_retries": 0, **more}


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which only `home` is DeerFlow's, and no key is set."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "HOME", "TMPDIR") if key in os.environ}
    return {**kept, "DEER_FLOW_HOME": str(home / ".deer-flow"), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that answers at `url`."""

    url: str
    home: Path
    deerflow: DeerFlow | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def api(self) -> str:
        return f"{self.url}/api"

    def client(self, **options: Any) -> httpx.AsyncClient:
        return client_of(self.api, **options)


def client_of(api: str, **options: Any) -> httpx.AsyncClient:
    """Return a client that loads no certificates, which would take longer than most requests here."""
    return httpx.AsyncClient(base_url=api, timeout=120, trust_env=False, verify=False, **options)


@contextmanager
def running_gateway(
    home: Path,
    model_url: str | None,
    *,
    options: GatewayOptions | None = None,
    capacity: int | None = None,
    **sections: Any,
) -> Iterator[Gateway]:
    """Serve from a thread of this process for the length of a block."""
    source = SettingsSource(write_config(home, model_url, **sections), env=environment(home), cwd=home)
    opened: list[DeerFlow] = []
    app = create_app(lambda: DeerFlow.open(source, takes_over=True, capacity=capacity), options)
    server = uvicorn.Server(server_config(app, grace_seconds=1))
    loops: list[asyncio.AbstractEventLoop] = []
    listener = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="gateway")
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            assert thread.is_alive(), "the gateway did not start"
            assert time.monotonic() < deadline, "the gateway is not up in time"
            time.sleep(0.01)
        opened.append(app.state.deerflow)
        yield Gateway(f"http://127.0.0.1:{listener.getsockname()[1]}", home, opened[0], loops[0])
    finally:
        server.should_exit = True
        thread.join(END_SECONDS)
        listener.close()


def free_port() -> int:
    """Return a port that nobody has, from below those that the system hands out to connections.

    A port of the system's choice could be anybody's before a server listens on it, and while it is down.
    """
    while True:
        with contextlib.suppress(OSError):
            port = random.SystemRandom().randrange(*_PORTS)
            socket.create_server(("127.0.0.1", port)).close()
            return port


class DeerFlowProcess:
    """A long-running `deerflow` command as a process of its own; several may share one home."""

    def __init__(self, home: Path, model_url: str | None, *, log_name: str, **sections: Any) -> None:
        self.home = home
        self._config = write_config(home, model_url, **sections)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = home / log_name
        self._log_bytes = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def log_since_start(self) -> str:
        """What it has said since it was started last; its log holds what it said before that too."""
        return self._log.read_bytes()[self._log_bytes :].decode() if self._log.exists() else ""

    @property
    def env(self) -> dict[str, str]:
        return environment(self.home)

    def command(self, *words: str) -> list[str]:
        """Return a `deerflow` command line with this process's settings."""
        return [sys.executable, "-m", "deerflow", *words, "--config", str(self._config)]

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as an operator would; return its exit code."""
        self._end(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Wait for its end; return its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def tell(self, how: signal.Signals) -> None:
        """Send a signal and go on."""
        assert self._process is not None
        self._process.send_signal(how)

    def _launch(self, *words: str, env: Mapping[str, str] | None = None) -> None:
        with self._log.open("ab") as log:
            self._log_bytes = log.tell()
            self._process = subprocess.Popen(
                self.command(*words),
                cwd=self.home,
                env={**self.env, **(env or {})},
                stdout=log,
                stderr=log,
            )

    def _wait_until(self, is_up: Callable[[], bool]) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the process ended: {self.log}"
            if is_up():
                return
            time.sleep(0.05)
        raise AssertionError(f"the process is not up in time: {self.log}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(END_SECONDS)


class GatewayProcess(DeerFlowProcess):
    """`deerflow serve`; started again it serves the same home on the same port."""

    def __init__(
        self, home: Path, model_url: str | None, *, concurrency: int | None = None, **sections: Any
    ) -> None:
        self._port = free_port()
        super().__init__(home, model_url, log_name=f"gateway-{self._port}.log", **sections)
        self._words = ["--port", str(self._port)]
        if concurrency is not None:
            self._words += ["--concurrency", str(concurrency)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def api(self) -> str:
        return f"{self.url}/api"

    def client(self) -> httpx.AsyncClient:
        return client_of(self.api)

    def start(self, env: Mapping[str, str] | None = None) -> "GatewayProcess":
        self._launch("serve", *self._words, env=env)
        self._wait_until(self._answers)
        return self

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/health", timeout=30, trust_env=False, verify=False)
        except httpx.TransportError:
            return False
        return answer.status_code == 200


class WorkerProcess(DeerFlowProcess):
    """`deerflow worker`."""

    _count = itertools.count(1)

    def __init__(self, home: Path, model_url: str | None, *, concurrency: int = 10, **sections: Any) -> None:
        super().__init__(home, model_url, log_name=f"worker-{next(self._count)}.log", **sections)
        self._concurrency = concurrency

    def start(self) -> "WorkerProcess":
        before = self.log.count(_WORKER_IS_UP)
        self._launch("worker", "--concurrency", str(self._concurrency))
        self._wait_until(lambda: self.log.count(_WORKER_IS_UP) > before)
        return self


def parse_sse(text: str) -> list[tuple[str, Any, str | None]]:
    """Return the events of a finished stream as (event, data, id)."""
    events = []
    for frame in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if ": " in line and line[0] != ":")
        if "event" in fields:
            events.append((fields["event"], json.loads(fields["data"]), fields.get("id")))
    return events
