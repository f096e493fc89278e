"""What MCP servers offer and answer, in our words."""

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
    """What a server says about a tool's effects; it may be wrong, and None says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server, checked and ready to be offered."""

    server: str
    name: str
    """What the server calls it."""
    call_name: str
    """What the model calls it."""
    description: str
    schema: Mapping[str, Any] = field(hash=False)
    """What it takes, as a JSON schema without references."""
    hints: ToolHints = ToolHints()
    fingerprint: str = ""
    """Stands for everything that the model is told about it: another one is another tool."""
    schema_nodes: int = 0
    """How many parts its schema has."""


@dataclass(frozen=True, slots=True)
class LeftOutTool:
    """A tool of a server that agents do not get."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class WithheldTool:
    """A tool that agents do not get before a person approves it."""

    name: str
    fingerprint: str
    """Stands for what it says of itself now."""
    reason: str
    changed: tuple[str, ...]
    """Which of `description`, `input_schema` and `hints` differ; none for a new tool."""
    before: Mapping[str, Any] | None = field(hash=False)
    now: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers, and what of it cannot be used."""

    tools: tuple[McpTool, ...] = ()
    left_out: tuple[LeftOutTool, ...] = ()


@dataclass(frozen=True, slots=True)
class McpFile:
    """Bytes that came with an answer: an image, a sound, a document."""

    data: bytes
    mime_type: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """What a tool returned."""

    text: str
    files: tuple[McpFile, ...] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server may send; beyond it, it is cut, left out or no longer listened to."""

    message_bytes: int = 16 * 1024 * 1024
    message_parts: int = 50_000
    """The most values in a message: each takes time to read, and meanwhile nothing else happens."""
    items: int = 1000
    """The most blocks of a result, and items of any list that is checked one by one."""
    stray_lines: int = 100
    """Lines of a program that are no messages; some print a greeting."""
    burst_messages: int = 5000
    """The most messages of a program within `burst_seconds`."""
    burst_seconds: float = 10
    tools: int = 500
    description_chars: int = 4000
    schema_nodes: int = 5000
    all_schema_nodes: int = 50_000
    """The most parts of all schemas of a server together."""
    progress_chars: int = 2000
    text_chars: int = 1_000_000
    file_bytes: int = 10 * 1024 * 1024
    files: int = 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where the programs of servers run, and what they get of our environment."""

    env: Mapping[str, str]
    folder: Path
    networks: tuple[Network, ...] = ()
    """Networks beyond the public ones that servers set over HTTP may be in."""


CALL_SECONDS = 600
"""How long a call may take where the settings do not say."""
START_SECONDS = 60
"""How long a server may take to start where the settings do not say."""


def call_seconds(settings: McpServerSettings) -> float:
    """Return how long one call of a server may take."""
    return settings.tool_call_timeout or CALL_SECONDS


def first_of(error: BaseException) -> BaseException:
    """Return the first thing that went wrong: tasks that work together fail in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


State = Literal["idle", "opening", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How one server is doing."""

    name: str
    state: State
    problem: str | None = None
    tools: tuple[str, ...] = ()
    left_out: tuple[LeftOutTool, ...] = ()
    """Tools that it offers and agents do not get, and why."""
    withheld: tuple[WithheldTool, ...] = ()
    """Tools that wait for an approval."""


Progress = Callable[[str], None]
"""Hears what a server says about a call under way."""


class LinkLostError(McpError):
    """The connection ended before the answer came."""


class SessionOverError(LinkLostError):
    """The server no longer knows the connection and did nothing: asking again on a new one is safe."""


class Link(Protocol):
    """An open connection to one server."""

    changed: asyncio.Event
    """Set when the server says that its tools are others now."""
    over: asyncio.Event
    """Set when nothing more will come."""

    async def tools(self) -> Listing:
        """Return what the server offers now."""

    async def call(self, name: str, arguments: Mapping[str, Any], *, progress: Progress) -> McpAnswer:
        """Let the server run a tool; cancelling takes the request back."""

    async def why(self) -> str:
        """Say why the connection ended, as far as that is known."""


class Connect(Protocol):
    """Opens connections."""

    def __call__(
        self, name: str, settings: McpServerSettings, place: Place, limits: Limits
    ) -> AbstractAsyncContextManager[Link]:
        """Return a connection for the length of a block."""
