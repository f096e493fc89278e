"""Stores each tool's description as it was accepted, so that a later change is detected.

A server can describe a harmless tool first and a different one once it is trusted. The accepted description
is kept in the store; a tool that differs from it is withheld until a person approves it.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import orjson
from langgraph.store.base import BaseStore, PutOp

from deerflow.config.extensions import McpServerSettings
from deerflow.errors import ConflictError, NotFoundError
from deerflow.mcp.base import McpTool, WithheldTool
from deerflow.mcp.tool_schema import model_name

Approval = Literal["off", "changes", "all"]

_NAMESPACE = "mcp_tools"
_MOST = 10_000
_PARTS = {"description": "its description", "input_schema": "its input schema", "hints": "its hints"}


class ToolPins:
    """The accepted versions of all servers' tools."""

    def __init__(self, store: BaseStore, *, approval: Approval = "changes", remembers: bool = True) -> None:
        """Args: `remembers`, whether a tool that is seen for the first time is stored as accepted."""
        self._store = store
        self.approval = approval
        self._remembers = remembers

    async def withheld(
        self, name: str, settings: McpServerSettings, tools: Iterable[McpTool]
    ) -> dict[str, WithheldTool]:
        """Return the tools that need approval, by name; accept new ones if the settings say so."""
        if self.approval == "off":
            return {}
        namespace = _namespace(name, settings)
        known = {item.key: item.value for item in await self._store.asearch(namespace, limit=_MOST)}
        found: dict[str, WithheldTool] = {}
        new: list[McpTool] = []
        for tool in tools:
            accepted = known.get(model_name(tool.name))
            if accepted is None and self.approval == "changes":
                new.append(tool)
            elif accepted is None or accepted["fingerprint"] != tool.fingerprint:
                found[tool.name] = _withheld(tool, accepted)
        if new and self._remembers:
            await self._accept(namespace, new)
        return found

    async def approve(
        self,
        name: str,
        settings: McpServerSettings,
        tools: Sequence[McpTool],
        wanted: Mapping[str, str],
    ) -> None:
        """Accept the current version of tools.

        Args:
            wanted: The fingerprint that the person saw, by tool; a different one raises `ConflictError`.

        """
        offered = {tool.name: tool for tool in tools}
        for tool, fingerprint in wanted.items():
            if tool not in offered:
                raise NotFoundError(f"tool of the MCP server '{name}'", tool[:80], known=offered)
            if offered[tool].fingerprint != fingerprint:
                raise ConflictError(f"{tool} of the MCP server '{name}' has changed again; review it again")
        await self._accept(_namespace(name, settings), [offered[tool] for tool in wanted])

    async def _accept(self, namespace: tuple[str, ...], tools: Iterable[McpTool]) -> None:
        values = {
            model_name(tool.name): {"fingerprint": tool.fingerprint, **_visible_parts(tool)} for tool in tools
        }
        await self._store.abatch([PutOp(namespace, key, value) for key, value in values.items()])


def _namespace(name: str, settings: McpServerSettings) -> tuple[str, ...]:
    """Return the namespace of a server's tools; a replaced server gets a new, empty one."""
    identity = [name, settings.type, settings.command, settings.args, settings.url]
    return _NAMESPACE, hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()


def _visible_parts(tool: McpTool) -> dict[str, Any]:
    """Return everything that the model and the guardrail rules see of a tool."""
    hints = {
        "readOnlyHint": tool.hints.read_only,
        "destructiveHint": tool.hints.destructive,
        "idempotentHint": tool.hints.idempotent,
    }
    return {"description": tool.description, "input_schema": dict(tool.schema), "hints": hints}


def _withheld(tool: McpTool, accepted: Mapping[str, Any] | None) -> WithheldTool:
    now = _visible_parts(tool)
    if accepted is None:
        return WithheldTool(tool.name, tool.fingerprint, "it is new", (), None, now)
    before = {part: accepted.get(part) for part in _PARTS}
    changed = tuple(part for part in _PARTS if before[part] != now[part])
    reason = f"{' and '.join(_PARTS[part] for part in changed) or 'it'} changed since it was accepted"
    return WithheldTool(tool.name, tool.fingerprint, reason, changed, before, now)
