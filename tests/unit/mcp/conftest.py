"""MCP servers as real programs and real HTTP servers."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from deerflow.config.extensions import McpServerSettings
from deerflow.mcp import McpServer
from deerflow.mcp.base import Limits, Place
from deerflow.mcp.link import connect

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
def place(tmp_path: Path) -> Place:
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "OPENAI_API_KEY": "sk-ours"}
    return Place(env, tmp_path)


@pytest.fixture
async def new_server(place: Place) -> AsyncIterator[NewServer]:
    made: list[McpServer] = []

    def make(script: str, *arguments: str, limits: Limits | None = None, **more: Any) -> McpServer:
        settings = settings_of(script, *arguments, **more)
        made.append(McpServer("deer", settings, connect=connect, place=place, limits=limits))
        return made[-1]

    yield make
    for server in made:
        await server.aclose()
