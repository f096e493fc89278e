"""MCP servers as real programs and real HTTP servers."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from support.mcp_server import serving_app

from deerflow.config.extensions import McpServerSettings
from deerflow.mcp import McpServer
from deerflow.mcp.base import Limits, ServerEnvironment
from deerflow.mcp.session import connect

SUPPORT = Path(__file__).parents[2] / "support"
GOOD, BROKEN = "mcp_server.py", "mcp_broken.py"
LONG = 300
"""Seconds that a test waits for a server: longer than it may take on any machine."""

NewServer = Callable[..., McpServer]


def settings_of(script: str, *arguments: str, **more: Any) -> McpServerSettings:
    command = {"command": sys.executable, "args": [str(SUPPORT / script), *arguments]}
    entry = {**command, "run_wait_seconds": LONG, **more}
    return McpServerSettings.model_validate(entry)


@pytest.fixture
def environment(tmp_path: Path) -> ServerEnvironment:
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "OPENAI_API_KEY": "sk-ours"}
    return ServerEnvironment(env, tmp_path)


@pytest.fixture
async def new_server(environment: ServerEnvironment) -> AsyncIterator[NewServer]:
    made: list[McpServer] = []

    def make(script: str, *arguments: str, limits: Limits | None = None, **more: Any) -> McpServer:
        settings = settings_of(script, *arguments, **more)
        made.append(McpServer("deer", settings, connect=connect, environment=environment, limits=limits))
        return made[-1]

    yield make
    for server in made:
        await server.aclose()


TOOL = {"name": "act", "description": "acts", "inputSchema": {"type": "object"}}


class OldServer:
    """A server of the year before, with sessions; `act` is what its tool does."""

    def __init__(self) -> None:
        self.session = 1
        self.headers: list[dict[str, str]] = []
        self.act: Callable[[], Response | None] = lambda: None
        self.unknown: Callable[[], Response] = lambda: Response(status_code=404)
        """What is said to a session that it does not know."""
        self.app = Starlette(routes=[Route("/mcp", self.answer, methods=["POST", "GET", "DELETE"])])

    async def answer(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        known = request.headers.get("mcp-session-id")
        match message["method"]:
            case "server/discover":
                return JSONResponse({"detail": "what?"}, status_code=400)
            case "initialize":
                info = {"name": "old", "version": "1"}
                result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                return self._said(message, {**result, "serverInfo": info})
            case _ if known != str(self.session):
                return self.unknown()
            case "tools/list":
                return self._said(message, {"tools": [TOOL]})
            case "tools/call":
                done = self.act()
                return done or self._said(message, {"content": [{"type": "text", "text": "acted"}]})
        return Response(status_code=202)

    def _said(self, message: Any, result: Any) -> Response:
        headers = {"mcp-session-id": str(self.session)}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


@pytest.fixture
def old() -> OldServer:
    return OldServer()


@pytest.fixture
def url(old: OldServer) -> Iterator[str]:
    with serving_app(old.app) as address:
        yield f"{address}/mcp"


@pytest.fixture
async def server(url: str, environment: ServerEnvironment) -> Any:
    entry = {
        "url": url,
        "headers": {"Authorization": "Bearer t-very-secret"},
        "tool_call_timeout": 30,
        "run_wait_seconds": LONG,
    }
    settings = McpServerSettings.model_validate(entry)
    made = McpServer(
        "old", settings, connect=connect, environment=environment, limits=Limits(message_bytes=100_000)
    )
    yield made
    await made.aclose()
