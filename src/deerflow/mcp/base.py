"""DeerFlow's own types for MCP servers, tools and results, independent of the SDK."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from deerflow.addresses import Network
from deerflow.config.extensions import McpServerSettings
from deerflow.errors import McpError


@dataclass(frozen=True, slots=True)
class ToolHints:
    """A server's hints about a tool's effects; they may be wrong, and None means unspecified."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server, validated and ready for a model."""

    server: str
    name: str
    """The server's name for it."""
    call_name: str
    """The name that the model uses."""
    description: str
    schema: Mapping[str, Any] = field(hash=False)
    """The input as a JSON schema without references."""
    hints: ToolHints = ToolHints()
    fingerprint: str = ""
    """A digest of everything the model sees of the tool: a different one means a different tool."""
    schema_nodes: int = 0
    """Number of nodes in the schema."""


@dataclass(frozen=True, slots=True)
class LeftOutTool:
    """A server's tool that agents do not get."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class WithheldTool:
    """A tool that agents do not get until a person approves it."""

    name: str
    fingerprint: str
    """The digest of its current description."""
    reason: str
    changed: tuple[str, ...]
    """Which of `description`, `input_schema` and `hints` differ; empty for a new tool."""
    before: Mapping[str, Any] | None = field(hash=False)
    now: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """A server's tools, and those that cannot be used."""

    tools: tuple[McpTool, ...] = ()
    left_out: tuple[LeftOutTool, ...] = ()


@dataclass(frozen=True, slots=True)
class McpFile:
    """Binary content of a result: an image, audio, a document."""

    data: bytes
    mime_type: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """The result of a tool call."""

    text: str
    files: tuple[McpFile, ...] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what one server may send; what exceeds them is truncated, left out or ends the connection."""

    message_bytes: int = 16 * 1024 * 1024
    message_parts: int = 50_000
    """Maximum JSON values in a message: parsing blocks the event loop."""
    items: int = 1000
    """Maximum content blocks of a result, and items of any list that is validated one by one."""
    other_lines: int = 100
    """Maximum lines of a process's output that are not messages; some print a banner."""
    burst_messages: int = 5000
    """Maximum messages of a process within `burst_seconds`."""
    burst_seconds: float = 10
    tools: int = 500
    description_chars: int = 4000
    schema_nodes: int = 5000
    all_schema_nodes: int = 50_000
    """Maximum nodes of all schemas of a server together."""
    progress_chars: int = 2000
    text_chars: int = 1_000_000
    file_bytes: int = 10 * 1024 * 1024
    files: int = 20


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """Working directory, environment and allowed networks for servers."""

    env: Mapping[str, str]
    folder: Path
    networks: tuple[Network, ...] = ()
    """Networks beyond the public ones that servers configured over HTTP may use."""


CALL_SECONDS = 600
"""Default timeout of a call."""
START_SECONDS = 60
"""Default timeout of a server's start."""


def call_seconds(settings: McpServerSettings) -> float:
    """Return the timeout of a server's calls."""
    return settings.tool_call_timeout or CALL_SECONDS


def first_of(error: BaseException) -> BaseException:
    """Return the first error: tasks of a task group fail as exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


State = Literal["idle", "opening", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of one server."""

    name: str
    state: State
    problem: str | None = None
    tools: tuple[str, ...] = ()
    left_out: tuple[LeftOutTool, ...] = ()
    """Tools that cannot be used, and why."""
    withheld: tuple[WithheldTool, ...] = ()
    """Tools that wait for approval."""


Progress = Callable[[str], None]
"""Callback for a server's progress messages during a call."""


class ConnectionLostError(McpError):
    """The connection ended before the result arrived."""


class SessionLostError(ConnectionLostError):
    """The server no longer knows the session and did nothing: a retry on a new connection is safe."""


class McpConnection(Protocol):
    """An open connection to one server."""

    changed: asyncio.Event
    """Set when the server notifies that its tools have changed."""
    over: asyncio.Event
    """Set when the connection has ended."""

    async def tools(self) -> Listing:
        """Return the server's current tools."""

    async def call(self, name: str, arguments: Mapping[str, Any], *, progress: Progress) -> McpAnswer:
        """Call a tool of the server; cancellation cancels the request."""

    async def why(self) -> str:
        """Return why the connection ended, as far as known."""


Connect = Callable[
    [str, McpServerSettings, ServerEnvironment, Limits], AbstractAsyncContextManager[McpConnection]
]
"""Opens a connection for the duration of a block: server name, settings, environment, limits."""
