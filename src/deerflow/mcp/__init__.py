"""Tools that live on MCP servers: reached, kept, reopened and ended here."""

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
