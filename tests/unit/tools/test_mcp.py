"""What a tool of an MCP server says of itself, as the rest of DeerFlow reads it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from support.sandboxes import FolderSandbox

from deerflow.agents.middlewares.tool_failures import is_safe_to_repeat
from deerflow.config.extensions import McpServerSettings
from deerflow.mcp import McpServer, McpServers, McpTool, ToolHints
from deerflow.mcp.base import Limits, ServerEnvironment
from deerflow.mcp.tool_schema import describe_tool
from deerflow.tools.mcp import ROUTING, McpToolbox, make_mcp_tool
from deerflow.tools.policy import Policy, PolicyCall


def server(**settings: Any) -> McpServer:
    """Return a server that is never opened."""
    entry = McpServerSettings.model_validate({"command": "nowhere", **settings})
    servers = McpServers(ServerEnvironment(os.environ, Path.cwd()))
    servers.use({"deer": entry})
    return McpServer("deer", entry, connect=servers._open, environment=ServerEnvironment({}, Path.cwd()))


def offer(hints: ToolHints | None = None, schema: Mapping[str, Any] | None = None) -> McpTool:
    return describe_tool(
        "deer",
        "act",
        description="Acts.",
        schema=schema or {"type": "object"},
        hints=hints or ToolHints(),
        with_prefix=True,
        limits=Limits(),
    )


def tool(hints: ToolHints | None = None, **settings: Any) -> BaseTool:
    return make_mcp_tool(server(**settings), offer(hints))


@pytest.mark.parametrize(
    ("hints", "action", "is_safe"),
    [
        (ToolHints(), "allow", False),
        (ToolHints(read_only=True), "allow", True),
        (ToolHints(destructive=True), "ask", False),
        (ToolHints(destructive=False), "allow", False),
        (ToolHints(destructive=True, idempotent=True), "ask", True),
        (ToolHints(read_only=True, destructive=True), "allow", True),
        (ToolHints(read_only=False, destructive=True), "ask", False),
    ],
)
def test_hints_say_what_is_asked_for_and_what_may_be_repeated(
    hints: ToolHints, action: str, is_safe: bool, tmp_path: Path
) -> None:
    made = tool(hints)

    decided = Policy().decide(PolicyCall.of(made.name, {"x": 1}, made, FolderSandbox(tmp_path)))

    assert decided.action == action
    assert is_safe_to_repeat(made) is is_safe


def test_a_schema_goes_to_the_model_as_the_server_wrote_it() -> None:
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "what it is called"},
            "runtime": {"enum": ["a", "b"]},
            "many": {"type": "array", "items": {"$ref": "#/$defs/one"}},
        },
        "required": ["title"],
        "$defs": {"one": {"type": "integer", "minimum": 1}},
    }

    shown = convert_to_openai_tool(make_mcp_tool(server(), offer(schema=schema)))["function"]

    assert (shown["name"], shown["description"]) == ("deer_act", "Acts.")
    assert shown["parameters"] == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "what it is called"},
            "runtime": {"enum": ["a", "b"]},
            "many": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        },
        "required": ["title"],
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, None),
        ({"routing": {"keywords": ["x"]}}, None),
        ({"routing": {"mode": "prefer", "keywords": [" "]}}, None),
        ({"routing": {"mode": "prefer", "keywords": ["Deer"]}}, ("deer",)),
        (
            {
                "routing": {"mode": "prefer", "keywords": ["Deer"]},
                "tools": {"act": {"routing": {"mode": "off"}}},
            },
            None,
        ),
        ({"tools": {"act": {"routing": {"mode": "prefer", "keywords": ["Elk"]}}}}, ("elk",)),
    ],
)
def test_words_of_a_tool_count_before_those_of_its_server(settings: Any, words: Any) -> None:
    route = (tool(**settings).metadata or {}).get(ROUTING)

    assert (route["words"] if route else None) == words


async def test_a_toolbox_without_servers_has_nothing() -> None:
    assert await McpToolbox(McpServers(ServerEnvironment({}, Path.cwd()))).tools() == ()
