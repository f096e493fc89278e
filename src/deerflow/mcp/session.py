"""A connection to one MCP server through the MCP SDK; imported when the first server is connected."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from mcp import Client, MCPError
from mcp.client import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    CallToolResult,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from deerflow.config.extensions import McpServerSettings
from deerflow.errors import McpError
from deerflow.mcp.base import (
    LeftOutTool,
    Limits,
    LinkLostError,
    Listing,
    McpAnswer,
    McpTool,
    Place,
    Progress,
    SessionOverError,
    ToolHints,
    call_seconds,
    first_of,
)
from deerflow.mcp.content import answer_of
from deerflow.mcp.http import Web
from deerflow.mcp.stdio import Pipe
from deerflow.mcp.tool_schema import describe_tool
from deerflow.programs import declared_environment

logger = logging.getLogger(__name__)

MAX_PAGES = 100
MAX_REASON_CHARS = 1000
_MARGIN_SECONDS = 30
_CLOSED = "Connection closed"
_NOT_FOUND = 404
_REFUSALS = (400, 404)
MAX_SHOWN_NAME_CHARS = 80
MAX_TOLD = 50
"""How many of the tools that are left out are reported."""
US = Implementation(name="deerflow", title="DeerFlow", version="3")


@asynccontextmanager
async def connect(
    name: str, settings: McpServerSettings, place: Place, limits: Limits
) -> AsyncIterator["SdkLink"]:
    """Open a connection for the duration of a block; the protocol version is negotiated."""
    way = _way(settings, place, limits)
    changed = asyncio.Event()

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    client = Client(way.open(), message_handler=hear, client_info=US, cache=None)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except (MCPError, ExceptionGroup) as error:
            first = first_of(error)
            if not isinstance(first, MCPError):
                raise
            raise McpError(await _reason(first, way)) from error
        # Results are not validated against a tool's output schema: the model reads them as text, and a
        # server's pattern, such as `^(a+)+$`, could block the event loop forever.
        client.session.validate_tool_result = _accept  # type: ignore[method-assign]
        link = SdkLink(name, client, way, settings, limits, changed)
        listening = asyncio.create_task(link.listen())
        stack.callback(listening.cancel)
        yield link


class SdkLink:
    """An open connection through the SDK's client."""

    def __init__(
        self,
        name: str,
        client: Client,
        way: Pipe | Web,
        settings: McpServerSettings,
        limits: Limits,
        changed: asyncio.Event,
    ) -> None:
        self._name = name
        self._client = client
        self._way = way
        self._settings = settings
        self._limits = limits
        self.changed = changed
        self.over = way.over

    async def listen(self) -> None:
        """Subscribe to tool list changes if the protocol requires it; older servers just notify."""
        capabilities = self._client.server_capabilities.tools
        is_new = self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not is_new or capabilities is None or not capabilities.list_changed:
            return
        try:
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.changed.set()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.debug("MCP server %s tells nothing of changed tools: %s", self._name, error)

    async def tools(self) -> Listing:
        """Return the server's current tools, and those that cannot be used."""
        listed = await self._listed()
        # In a thread: validating the schemas of many tools takes seconds.
        return await asyncio.to_thread(_listing, self._name, listed, self._settings, self._limits)

    async def call(self, name: str, arguments: Mapping[str, Any], *, progress: Progress) -> McpAnswer:
        """Call a tool of the server; cancellation cancels the request."""

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            text = (message or "")[: self._limits.progress_chars]
            tell(text or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        tell = progress
        try:
            result = await self._client.call_tool(name, dict(arguments), progress_callback=hear)
        except MCPError as error:
            if _is_lost(error, self._way):
                raise LinkLostError(await self._way.why()) from error
            if await self._is_session_over(error):
                raise SessionOverError("it ended the session") from error
            raise McpError(await _reason(error, self._way)) from error
        except ValidationError as error:
            raise McpError("its answer is not the protocol's") from error
        return await answer_of(result, self._limits)

    async def why(self) -> str:
        """Return why the connection ended."""
        return await self._way.why()

    async def _listed(self) -> list[Tool]:
        tools: list[Tool] = []
        cursor: str | None = None
        try:
            for _ in range(MAX_PAGES):
                page = await self._client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None or len(tools) > self._limits.tools:
                    break
        except MCPError as error:
            raise McpError(await _reason(error, self._way)) from error
        except ValidationError as error:
            raise McpError("its list of tools is not the protocol's") from error
        return tools

    async def _is_session_over(self, error: MCPError) -> bool:
        """Return whether the server rejected the call unprocessed because it lost the session."""
        if not isinstance(self._way, Web) or not self._way.has_session:
            return False
        if self._way.status == _NOT_FOUND and "session" in error.message.lower():
            return True
        if self._way.status not in _REFUSALS:
            return False
        # Restarted servers also answer 400, as they do for invalid arguments: try a request without effects.
        try:
            await self._client.list_tools()
        except MCPError:
            return self._way.status in _REFUSALS
        return False


async def _accept(name: str, result: CallToolResult) -> None:
    """Accept a result without validation."""


def _listing(name: str, listed: list[Tool], settings: McpServerSettings, limits: Limits) -> Listing:
    """Convert each tool; tools that cannot be used are left out, and the log says why."""
    found: dict[str, McpTool] = {}
    left_out: list[LeftOutTool] = []
    nodes_left = limits.all_schema_nodes
    for tool in listed:
        try:
            if len(found) >= limits.tools:
                raise McpError(f"the server has more than {limits.tools} tools")
            described = _described(name, tool, settings, limits)
            nodes_left -= described.schema_nodes
            if nodes_left < 0:
                raise McpError(f"the schemas of this server have more than {limits.all_schema_nodes} parts")
        except (McpError, SchemaError) as error:
            reason = str(getattr(error, "message", error))[:MAX_REASON_CHARS]
            left_out.append(LeftOutTool(tool.name[:MAX_SHOWN_NAME_CHARS], reason))
            continue
        found.setdefault(described.call_name, described)
    for tool_left in left_out[:MAX_TOLD]:
        logger.warning("MCP server %s: tool %r is left out: %s", name, tool_left.name, tool_left.reason)
    return Listing(tuple(found.values()), tuple(left_out[:MAX_TOLD]))


def _described(server: str, tool: Tool, settings: McpServerSettings, limits: Limits) -> McpTool:
    if tool.execution is not None and tool.execution.task_support == "required":
        raise McpError("it can only be called as a task, which DeerFlow does not do")
    said = tool.annotations
    hints = ToolHints()
    if said is not None:
        hints = ToolHints(said.read_only_hint, said.destructive_hint, said.idempotent_hint)
    described = describe_tool(
        server,
        tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        hints=hints,
        with_prefix=settings.tool_name_prefix,
        limits=limits,
    )
    # Without formats: checking a pattern means compiling it, which can take minutes.
    Draft202012Validator.check_schema(described.schema, format_checker=FormatChecker(()))
    return described


def _way(settings: McpServerSettings, place: Place, limits: Limits) -> Pipe | Web:
    if settings.type == "stdio":
        env = declared_environment(place.env, settings.env)
        command = (settings.command or "", *settings.args)
        return Pipe(command, env=env, folder=place.folder, limits=limits)
    networks = place.networks if settings.set_over_http else None
    silence = call_seconds(settings) + _MARGIN_SECONDS
    return Web(settings, silence_seconds=silence, limits=limits, networks=networks)


def _is_lost(error: MCPError, way: Pipe | Web) -> bool:
    """Return whether the SDK reported a closed connection; servers use the same code for their own errors."""
    return way.over.is_set() or (error.code, error.message) == (CONNECTION_CLOSED, _CLOSED)


async def _reason(error: MCPError, way: Pipe | Web) -> str:
    """Return the reason for an error: the server's message, or the transport's if the connection is lost."""
    if _is_lost(error, way):
        return await way.why()
    if isinstance(way, Web) and (problem := way.take_problem()) is not None:
        return problem
    if isinstance(way, Web) and error.code in (INTERNAL_ERROR, METHOD_NOT_FOUND) and way.status is not None:
        return f"{error.message[:MAX_REASON_CHARS]} (HTTP status {way.status})"
    return error.message[:MAX_REASON_CHARS]
