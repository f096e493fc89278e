"""Client for MCP servers: connects to them, lists and calls their tools, reconnects, and closes them."""

from deerflow.mcp.base import (
    LeftOutTool,
    Listing,
    McpAnswer,
    McpFile,
    McpTool,
    ServerStatus,
    ToolHints,
    WithheldTool,
)
from deerflow.mcp.pins import ToolPins
from deerflow.mcp.server import McpServer
from deerflow.mcp.servers import McpServers, missing_package

__all__ = [
    "LeftOutTool",
    "Listing",
    "McpAnswer",
    "McpFile",
    "McpServer",
    "McpServers",
    "McpTool",
    "ServerStatus",
    "ToolHints",
    "ToolPins",
    "WithheldTool",
    "missing_package",
]
