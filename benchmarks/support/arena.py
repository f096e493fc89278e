"""The two sides of a comparison and the model server that both talk to, each in a process of its own."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
UI_MODES = ["values", "messages-tuple", "updates", "custom"]
START_SECONDS = 60
PAUSE_SECONDS = 0.02
"""Between two runs, on both sides: a person who reads the end does not start the next run at once."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds to the first token and to the end."""

    first: float
    total: float


class Arena:
    """A model server, the raw agent and the gateway, ready to be timed in turn."""

    def __init__(
        self, gateway_port: int, raw: "subprocess.Popen[str]", model_url: str, server_pid: int, home: Path
    ) -> None:
        self.port = gateway_port
        self._raw = raw
        self.model_url = model_url
        self.server_pid = server_pid
        self.home = home
        """The gateway's own folder, with its database."""

    def beside(self, port: int, server_pid: int, home: Path) -> "Arena":
        """Return the same arena around another gateway."""
        return Arena(port, self._raw, self.model_url, server_pid, home)

    def raw(self, text: str, runs: int) -> list[Timing]:
        """Time the raw agent."""
        return [Timing(*pair) for pair in self._ask_raw({"text": text, "runs": runs})]

    def raw_together(self, text: str, runs: int) -> dict[str, Any]:
        """Let the raw agent do so many runs at once; return what it says of them."""
        answer: dict[str, Any] = self._ask_raw({"text": text, "runs": runs, "together": True})
        return answer

    def gateway(self, text: str, runs: int, *, thread: str | None = None, **more: Any) -> list[Timing]:
        """Time the whole stack over HTTP, each run in a new thread unless one is named."""
        return asyncio.run(self._gateway(text, runs, thread, more))

    def _ask_raw(self, order: dict[str, Any]) -> Any:
        stdin, stdout = self._raw.stdin, self._raw.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    async def _gateway(self, text: str, runs: int, thread: str | None, more: dict[str, Any]) -> list[Timing]:
        timings = []
        for _ in range(runs):
            timings.append(await self._run(text, thread or await self.new_thread(), more))
            await asyncio.sleep(PAUSE_SECONDS)
        return timings

    async def new_thread(self) -> str:
        """Make a thread and return its id."""
        thread = str(uuid.uuid4())
        _, writer = await self.post("/api/threads", {"thread_id": thread})
        writer.close()
        return thread

    async def _run(self, text: str, thread: str, more: dict[str, Any]) -> Timing:
        body = {"input": {"messages": [{"type": "human", "content": text}]}, "stream_mode": UI_MODES, **more}
        body["config"] = {"recursion_limit": 1000}
        started, first = time.perf_counter(), 0.0
        reader, writer = await self.post(f"/api/threads/{thread}/runs/stream", body)
        seen = b""
        while piece := await reader.read(1 << 16):
            seen = seen[-200:] + piece
            if not first and b"AIMessageChunk" in piece and b'"content":"zq' in piece:
                first = time.perf_counter() - started
            if b"event: end\n" in seen:
                break
        writer.close()
        return Timing(first, time.perf_counter() - started)

    async def post(self, path: str, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request and return its connection, the head of the answer read."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        raw = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + raw)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer.split(b"\r\n", 1)[0], answer
        return reader, writer


LIGHT: dict[str, Any] = {"sandbox": {"use": "local"}, "memory": {"debounce_seconds": 300}}
"""For benchmarks of one part: no self-test of the sandbox, and no extraction of memories, beside it."""


@contextmanager
def open_arena(**sections: Any) -> Iterator[Arena]:
    """Start everything and stop it with the block; `sections` are the settings besides the model."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model_port = free_port()
        model = [sys.executable, str(ROOT / "tests/support/model_server.py"), "--port", str(model_port)]
        stack.enter_context(running(model, stdout=subprocess.DEVNULL))
        _await_port(model_port)
        model_url = f"http://127.0.0.1:{model_port}/v1"
        port = free_port()
        server = stack.enter_context(serving(home, model_url, port, **sections))
        command = [sys.executable, "-m", "benchmarks.support.raw_agent", model_url]
        raw = stack.enter_context(running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT))
        yield Arena(port, raw, model_url, server.pid, home)


@contextmanager
def serving(
    home: Path, model_url: str, port: int, *, options: Sequence[str] = (), **sections: Any
) -> "Iterator[subprocess.Popen[str]]":
    """Run `deerflow serve` on a home until it is healthy, and end it with the block."""
    entry = {"name": "bench", "use": "langchain_openai:ChatOpenAI", "model": "bench", "base_url": model_url}
    config = {"models": [{**entry, "api_key": "sk-bench"}], **sections}
    path = home / "config.yaml"
    path.write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "deerflow",
        "serve",
        "--port",
        str(port),
        "--config",
        str(path),
        *options,
    ]
    with running(command, stdout=subprocess.DEVNULL, env=_environment(home)) as process:
        await_health(port)
        yield process


@contextmanager
def working(home: Path, at_once: int) -> Iterator[None]:
    """Run `deerflow worker` for the server of the same home, and end it with the block."""
    command = [sys.executable, "-m", "deerflow", "worker", "--concurrency", str(at_once)]
    command += ["--config", str(home / "config.yaml")]
    with running(command, stdout=subprocess.DEVNULL, env=_environment(home)):
        yield


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "DEER_FLOW_HOME": str(home / "home")}


def await_health(port: int) -> None:
    """Return once the server on `port` is healthy."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(f"nothing healthy on port {port}")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _await_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def running(
    command: list[str],
    *,
    stdout: int | IO[Any] | None = None,
    stdin: int | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> "Iterator[subprocess.Popen[str]]":
    """Run a program; what it writes to its standard error is shown only with an error in the block."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdout=stdout, stdin=stdin, stderr=log, text=True, cwd=cwd, env=env
        )
        try:
            yield process
        except Exception as error:
            log.seek(0)
            error.add_note(f"{command[2]} wrote: {log.read()[-4000:]}")
            raise
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
