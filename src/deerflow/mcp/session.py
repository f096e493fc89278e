"""A connection to one MCP server through the MCP SDK; imported when the first server is connected."""

import asyncio
import base64
import binascii
import json
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
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from deerflow.config.extensions import McpServerSettings
from deerflow.errors import McpError
from deerflow.mcp.base import (
    ConnectionLostError,
    LeftOutTool,
    Limits,
    Listing,
    McpAnswer,
    McpFile,
    McpTool,
    Progress,
    ServerEnvironment,
    SessionLostError,
    ToolHints,
    call_seconds,
    first_of,
)
from deerflow.mcp.http import HttpTransport
from deerflow.mcp.stdio import StdioTransport
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
MAX_REPORTED = 50
"""How many of the tools that are left out are reported."""
Transport = StdioTransport | HttpTransport
CLIENT_INFO = Implementation(name="deerflow", title="DeerFlow", version="3")


@asynccontextmanager
async def connect(
    name: str, settings: McpServerSettings, environment: ServerEnvironment, limits: Limits
) -> AsyncIterator["McpSession"]:
    """Open a connection for the duration of a block; the protocol version is negotiated."""
    transport = _transport_of(settings, environment, limits)
    changed = asyncio.Event()

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    client = Client(transport.open(), message_handler=on_message, client_info=CLIENT_INFO, cache=None)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except (MCPError, ExceptionGroup) as error:
            first = first_of(error)
            if not isinstance(first, MCPError):
                raise
            raise McpError(await _reason(first, transport)) from error
        # Results are not validated against a tool's output schema: the model reads them as text, and a
        # server's pattern, such as `^(a+)+$`, could block the event loop forever.
        client.session.validate_tool_result = _accept  # type: ignore[method-assign]
        connection = McpSession(name, client, transport, settings, limits, changed)
        listening = asyncio.create_task(connection.listen())
        stack.callback(listening.cancel)
        yield connection


class McpSession:
    """An open connection through the SDK's client."""

    def __init__(
        self,
        name: str,
        client: Client,
        transport: Transport,
        settings: McpServerSettings,
        limits: Limits,
        changed: asyncio.Event,
    ) -> None:
        self._name = name
        self._client = client
        self._transport = transport
        self._settings = settings
        self._limits = limits
        self.changed = changed
        self.over = transport.over

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
            logger.debug("MCP server %s does not report changed tools: %s", self._name, error)

    async def tools(self) -> Listing:
        """Return the server's current tools, and those that cannot be used."""
        listed = await self._listed()
        # In a thread: validating the schemas of many tools takes seconds.
        return await asyncio.to_thread(_listing, self._name, listed, self._settings, self._limits)

    async def call(self, name: str, arguments: Mapping[str, Any], *, progress: Progress) -> McpAnswer:
        """Call a tool of the server; cancellation cancels the request."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            text = (message or "")[: self._limits.progress_chars]
            report(text or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        report = progress
        try:
            result = await self._client.call_tool(name, dict(arguments), progress_callback=on_progress)
        except MCPError as error:
            if _is_lost(error, self._transport):
                raise ConnectionLostError(await self._transport.why()) from error
            if await self._is_session_over(error):
                raise SessionLostError("it ended the session") from error
            raise McpError(await _reason(error, self._transport)) from error
        except ValidationError as error:
            raise McpError("its answer is not the protocol's") from error
        return await answer_of(result, self._limits)

    async def why(self) -> str:
        """Return why the connection ended."""
        return await self._transport.why()

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
            raise McpError(await _reason(error, self._transport)) from error
        except ValidationError as error:
            raise McpError("its list of tools is not the protocol's") from error
        return tools

    async def _is_session_over(self, error: MCPError) -> bool:
        """Return whether the server rejected the call unprocessed because it lost the session."""
        if not isinstance(self._transport, HttpTransport) or not self._transport.has_session:
            return False
        if self._transport.status == _NOT_FOUND and "session" in error.message.lower():
            return True
        if self._transport.status not in _REFUSALS:
            return False
        # Restarted servers also answer 400, as they do for invalid arguments: try a request without effects.
        try:
            await self._client.list_tools()
        except MCPError:
            return self._transport.status in _REFUSALS
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
    for tool_left in left_out[:MAX_REPORTED]:
        logger.warning("MCP server %s: tool %r is left out: %s", name, tool_left.name, tool_left.reason)
    return Listing(tuple(found.values()), tuple(left_out[:MAX_REPORTED]))


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


def _transport_of(settings: McpServerSettings, environment: ServerEnvironment, limits: Limits) -> Transport:
    if settings.type == "stdio":
        env = declared_environment(environment.env, settings.env)
        command = (settings.command or "", *settings.args)
        return StdioTransport(command, env=env, folder=environment.folder, limits=limits)
    networks = environment.networks if settings.set_over_http else None
    silence = call_seconds(settings) + _MARGIN_SECONDS
    return HttpTransport(settings, silence_seconds=silence, limits=limits, networks=networks)


def _is_lost(error: MCPError, transport: Transport) -> bool:
    """Return whether the SDK reported a closed connection; servers use the same code for their own errors."""
    return transport.over.is_set() or (error.code, error.message) == (CONNECTION_CLOSED, _CLOSED)


async def _reason(error: MCPError, transport: Transport) -> str:
    """Return the reason for an error: the server's message, or the transport's if the connection is lost."""
    if _is_lost(error, transport):
        return await transport.why()
    if isinstance(transport, HttpTransport):
        if (problem := transport.take_problem()) is not None:
            return problem
        if error.code in (INTERNAL_ERROR, METHOD_NOT_FOUND) and transport.status is not None:
            return f"{error.message[:MAX_REASON_CHARS]} (HTTP status {transport.status})"
    return error.message[:MAX_REASON_CHARS]


IN_FILE = "(in the file below)"
"""Replaces the data of a file in the accompanying text."""
SHORTEST_REPEATED = 64
_PIECE_CHARS = 4 * 262_144
"""A multiple of four, so that each chunk of base64 can be decoded separately."""


async def answer_of(result: CallToolResult, limits: Limits) -> McpAnswer:
    """Return the usable text and files of a result."""
    found = _Content(limits)
    for block in result.content[: limits.items]:
        await found.take(block)
    if len(result.content) > limits.items:
        found.texts.append(f"[blocks after the first {limits.items} were left out; ask for less at once]")
    if result.structured_content is not None and not found.has_text:
        found.texts.insert(0, json.dumps(result.structured_content, ensure_ascii=False, default=str))
    text = "\n\n".join(found.texts)
    for data in found.file_data:  # servers repeat an image in the structured content or in a text block
        text = text.replace(data, IN_FILE)
    if len(text) > limits.text_chars:
        left = len(text) - limits.text_chars
        text = f"{text[: limits.text_chars]}\n[{left} more characters were left out; ask for less at once]"
    return McpAnswer(text, tuple(found.files), is_error=result.is_error)


class _Content:
    """Collects the texts and files of a result's blocks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.texts: list[str] = []
        self.files: list[McpFile] = []
        self.file_data: list[str] = []
        """The base64 data of files, if long enough to be distinguished from words."""
        self.has_text = False

    async def take(self, block: Any) -> None:
        """Add a block's content."""
        match block:
            case TextContent(text=text):
                self.texts.append(text)
                self.has_text = self.has_text or not (text == "" or text.isspace())
            case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
                await self._keep(data, kind, "")
            case EmbeddedResource(resource=BlobResourceContents() as blob):
                await self._keep(blob.blob, blob.mime_type or "", str(blob.uri))
            case EmbeddedResource(resource=TextResourceContents() as resource):
                self.texts.append(f"[{resource.uri}]\n{resource.text}")
            case ResourceLink(name=name, uri=uri, description=about):
                self.texts.append(f"[{name}: {uri}]" + (f" {about}" if about else ""))

    async def _keep(self, data: str, kind: str, uri: str) -> None:
        """Add a file, or a line that says why it was left out."""
        if len(data) >= SHORTEST_REPEATED:
            self.file_data.append(data)
        problem, content = None, b""
        if len(self.files) >= self._limits.files:
            problem = f"more than {self._limits.files} files"
        elif len(data) * 3 // 4 > self._limits.file_bytes:
            problem = f"larger than {self._limits.file_bytes} bytes"
        else:
            try:
                content = await _decoded(data)
            except (binascii.Error, ValueError):
                problem = "it is no base64"
        if problem is not None:
            self.texts.append(f"[{uri or kind or 'a file'} was left out: {problem}]")
            return
        self.files.append(
            McpFile(content, kind.lower() or "application/octet-stream", uri.rpartition("/")[2])
        )


async def _decoded(data: str) -> bytes:
    """Decode in chunks, yielding to the event loop in between."""
    pieces = []
    for start in range(0, len(data), _PIECE_CHARS):
        pieces.append(base64.b64decode(data[start : start + _PIECE_CHARS], validate=True))
        await asyncio.sleep(0)
    return b"".join(pieces)
