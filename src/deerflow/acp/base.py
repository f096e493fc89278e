"""Value types for a call of an ACP agent: request, progress and answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deerflow.config.extensions import McpServerSettings
from deerflow.config.subagents import AcpAgentSettings


@dataclass(frozen=True, slots=True)
class AcpWork:
    """The prompt of an agent, with its workspace and MCP servers."""

    agent: AcpAgentSettings
    prompt: str
    workspace: Path
    mcp_servers: Mapping[str, McpServerSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcpProgress:
    """One progress event of an agent."""

    kind: Literal["message", "tool_call", "plan", "permission"]
    text: str
    status: str | None = None


Watch = Callable[[AcpProgress], None]
"""Callback for an agent's progress events."""


@dataclass(frozen=True, slots=True)
class AcpAnswer:
    """The answer of an agent."""

    text: str
    stop_reason: str
    refused: tuple[str, ...] = ()
    """The steps for which permission was refused."""
