"""Validates a server's tools before a model sees them: names, descriptions and schemas.

A provider rejects a whole request because of one invalid schema, so an invalid tool is left out individually.
References are expanded here, under a limit: a few lines of them can expand to gigabytes.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import orjson

from deerflow.domain.tags import neutralise, without_hidden_characters
from deerflow.errors import McpError
from deerflow.mcp.base import Limits, McpTool, ToolHints

MAX_NAME_CHARS = 64
"""The maximum that all providers accept."""
MAX_DEPTH = 30
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_CHARS = 8
_FINGERPRINT_BYTES = 16
_WORDS = frozenset({"description", "title"})
"""Schema keys whose values are text for the model only."""
_ANNOTATIONS = ("$schema", "$id", "$comment", "$anchor")


def describe_tool(
    server: str,
    name: str,
    *,
    description: str,
    schema: object,
    hints: ToolHints,
    with_prefix: bool,
    limits: Limits,
) -> McpTool:
    """Return a tool as the model sees it; raise an `McpError` if it is invalid."""
    plain, nodes = plain_schema(schema, limits.schema_nodes)
    plain = _words(plain)
    call_name = model_name(f"{server}_{name}" if with_prefix else name)
    fallback = f"{name[:MAX_NAME_CHARS]} of the MCP server {server}."
    text = neutralise(
        without_hidden_characters(_clip(description.strip(), limits.description_chars) or fallback)
    )
    # Without the call name: whether that has a prefix is the operator's choice.
    whole = orjson.dumps([name, text, plain, _flags(hints)], option=orjson.OPT_SORT_KEYS)
    mark = hashlib.blake2b(whole, digest_size=_FINGERPRINT_BYTES).hexdigest()
    return McpTool(server, name, call_name, text, plain, hints, mark, nodes)


def _words(node: Any, key: str = "") -> Any:
    """Neutralise a schema's descriptions and titles; raise if any other text would have to change."""
    match node:
        case Mapping():
            return {_same(name): _words(value, name) for name, value in node.items()}
        case list():
            return [_words(item) for item in node]
        case str():
            return neutralise(without_hidden_characters(node)) if key in _WORDS else _same(node)
    return node


def _same(text: str) -> str:
    if neutralise(without_hidden_characters(text)) != text:
        raise McpError(f"its input schema has hidden characters or tags of our prompts: {text[:80]!r}")
    return text


def model_name(name: str) -> str:
    """Return a name that every provider accepts; distinct names stay distinct."""
    fit = _UNFIT.sub("_", name)
    if fit == name and len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.blake2b(name.encode(errors="replace"), digest_size=_HASH_CHARS // 2).hexdigest()
    return f"{fit[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{mark}"


def plain_schema(schema: object, max_nodes: int) -> tuple[dict[str, Any], int]:
    """Return an object schema without references, and its number of nodes."""
    if not isinstance(schema, Mapping):
        raise McpError("its input schema is no object")
    expansion = _Expansion(schema, max_nodes)
    plain = expansion.of(schema)
    if plain.get("type", "object") != "object":
        raise McpError(f"its input schema describes a {plain['type']!s:.40}, not an object")
    properties = plain.get("properties", {})
    if not isinstance(properties, dict):
        raise McpError("the properties of its input schema are no object")
    required = plain.get("required", [])
    known = [name for name in required if name in properties] if isinstance(required, list) else []
    return {**plain, "type": "object", "properties": properties, "required": known}, expansion.nodes


class _Expansion:
    """Replaces references by their targets."""

    def __init__(self, root: Mapping[str, Any], max_nodes: int) -> None:
        self._root = root
        self._left = self._most = max_nodes

    @property
    def nodes(self) -> int:
        """Number of nodes expanded so far."""
        return self._most - self._left

    def of(self, node: Mapping[str, Any]) -> dict[str, Any]:
        whole = self._plain(node, ())
        return {key: value for key, value in whole.items() if key not in ("$defs", "definitions")}

    def _plain(self, node: Any, within: tuple[str, ...]) -> Any:
        self._left -= 1
        if self._left < 0 or len(within) > MAX_DEPTH:
            raise McpError(f"its input schema has more than {self._most} parts")
        if isinstance(node, list):
            return [self._plain(item, (*within, "")) for item in node]
        if not isinstance(node, Mapping):
            return node
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                return {}  # a recursive schema accepts anything from here on
            others = {key: value for key, value in node.items() if key != "$ref"}
            return self._plain({**self._target(reference), **others}, (*within, reference))
        return {
            key: self._plain(value, (*within, ""))
            for key, value in node.items()
            if key not in _ANNOTATIONS and not (len(within) == 0 and key in ("$defs", "definitions"))
        }

    def _target(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        if not reference.startswith("#"):
            raise McpError("its input schema refers to another document")
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise McpError(f"its input schema refers to {reference[:80]}, which is not there")
        return found


def _flags(hints: ToolHints) -> list[bool | None]:
    return [hints.read_only, hints.destructive, hints.idempotent]


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} […]"
