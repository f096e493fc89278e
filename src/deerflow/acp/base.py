"""What an agent of another program does and answers, in our words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deerflow.config.extensions import McpServerSettings
from deerflow.config.subagents import AcpAgentSettings


@dataclass(frozen=True, slots=True)
class AcpWork:
    """What an agent is asked to do, and with what."""

    agent: AcpAgentSettings
    prompt: str
    workspace: Path
    mcp_servers: Mapping[str, McpServerSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcpProgress:
    """One thing that an agent did."""

    kind: Literal["message", "tool_call", "plan", "permission"]
    text: str
    status: str | None = None


Watch = Callable[[AcpProgress], None]
"""Hears of an agent's progress as it happens."""


@dataclass(frozen=True, slots=True)
class AcpAnswer:
    """What an agent answered."""

    text: str
    stop_reason: str
    refused: tuple[str, ...] = ()
    """What it asked permission for in vain."""
