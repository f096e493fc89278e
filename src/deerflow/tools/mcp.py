"""Wraps tools of MCP servers as LangChain tools: schemas, results and metadata."""

import mimetypes
import posixpath
import re
from typing import Any

from langchain_core.tools import BaseTool, ToolException

from deerflow.config.extensions import McpServerSettings
from deerflow.domain import new_id
from deerflow.errors import DeerFlowError, SandboxError
from deerflow.mcp import McpAnswer, McpFile, McpServer, McpServers, McpTool, ToolHints
from deerflow.sandbox import Sandbox
from deerflow.tools.define import PlainTool, Runtime
from deerflow.tools.shell import LiveOutput, publish_output

MCP_SERVER = "mcp_server"
"""Metadata key with the name of the tool's server."""
FINGERPRINT = "mcp_fingerprint"
"""Metadata key with the digest of everything the model sees of the tool."""
ROUTING = "mcp_routing"
"""Metadata key with the tool's routing keywords and priority."""
FOLDER = "/mnt/user-data/workspace/.mcp"
"""The folder for images and other files of results."""
_UNFIT = re.compile(r"[^\w.-]+")
MAX_NAME_CHARS = 40


class McpToolbox:
    """The current tools of all servers; while nothing changes they are the same objects."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers
        self._server_tools: list[tuple[McpServer, McpTool]] = []
        self._tools: tuple[BaseTool, ...] = ()

    async def tools(self) -> tuple[BaseTool, ...]:
        """Return the tools of all reachable servers, connecting those that are not connected yet."""
        server_tools = await self._servers.tools() if self._servers else []
        if server_tools != self._server_tools:
            self._server_tools = server_tools
            self._tools = tuple(make_mcp_tool(server, tool) for server, tool in server_tools)
        return self._tools


def make_mcp_tool(server: McpServer, offered: McpTool) -> BaseTool:
    """Return a LangChain tool that calls one tool of a server."""

    # A server's tool may have an argument named `runtime`, so this parameter has a name of its own.
    async def call(*, deerflow_runtime: Runtime, **arguments: Any) -> str:
        runtime = deerflow_runtime
        redact = runtime.context.watch.redact  # servers echo what they receive, including keys
        with LiveOutput(lambda text: publish_output(runtime, redact.known(text))) as live:
            try:
                answer = await server.call(offered.name, arguments, progress=lambda text: live(f"{text}\n"))
            except DeerFlowError as error:
                raise ToolException(redact(str(error))) from error
        text = redact.known(await _text_of(answer, offered, runtime.context.sandbox))
        if answer.is_error:
            raise ToolException(text or f"{offered.name} failed without saying why.")
        return text or "(no output)"

    return PlainTool.from_function(
        coroutine=call,
        name=offered.call_name,
        description=offered.description,
        args_schema=dict(offered.schema),
        handle_tool_error=True,
        metadata={
            MCP_SERVER: server.name,
            FINGERPRINT: offered.fingerprint,
            **_hints(offered.hints),
            **_routing(server.settings, offered.name),
        },
    )


def _hints(hints: ToolHints) -> dict[str, bool]:
    """Return a server's hints about a tool's effects, under the protocol's names."""
    said = {
        "readOnlyHint": hints.read_only,
        # A read-only tool is not destructive, whatever the other hint says.
        "destructiveHint": None if hints.read_only else hints.destructive,
        "idempotentHint": hints.idempotent,
    }
    return {name: value for name, value in said.items() if value is not None}


def _routing(settings: McpServerSettings, tool: str) -> dict[str, Any]:
    """Return a tool's routing keywords and priority: its own if set, else its server's."""
    own = settings.tools.get(tool)
    route = own.routing if own is not None and "routing" in own.model_fields_set else settings.routing
    words = tuple(word.casefold() for word in route.keywords if word.strip())
    if route.mode == "off" or not words:
        return {}
    return {ROUTING: {"priority": route.priority, "words": words}}


async def _text_of(answer: McpAnswer, tool: McpTool, sandbox: Sandbox) -> str:
    """Return the result's text, with its files saved where the agent can open them."""
    lines = [await _saved(file, tool, sandbox) for file in answer.files]
    return "\n\n".join(part for part in (answer.text, *lines) if part)


async def _saved(file: McpFile, tool: McpTool, sandbox: Sandbox) -> str:
    path = f"{FOLDER}/{_file_name(file, tool)}"
    try:
        await sandbox.update_file(path, file.data)
    except SandboxError as error:
        return f"[{file.mime_type} with {len(file.data)} bytes could not be kept: {error}]"
    hint = "; view_image shows it, where you have that" if file.mime_type.startswith("image/") else ""
    return f"[{file.mime_type} with {len(file.data)} bytes is in {path}{hint}]"


def _file_name(file: McpFile, tool: McpTool) -> str:
    """Return a file name that is unique in the thread."""
    stem, ending = posixpath.splitext(_UNFIT.sub("_", file.name).strip("."))
    ending = mimetypes.guess_extension(file.mime_type) or ending[:10] or ".bin"
    return f"{(stem or tool.call_name)[:MAX_NAME_CHARS]}-{new_id()[:6]}{ending}"
