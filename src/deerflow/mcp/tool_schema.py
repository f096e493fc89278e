"""Checks what a server offers before a model sees it: names, descriptions and schemas.

A provider refuses a whole request for one bad schema, so a tool that cannot be described properly is left out
by itself. References are put in place here, under a limit: a few lines of them can stand for gigabytes.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import orjson

from deerflow.domain.tags import neutralise, visible_words
from deerflow.errors import McpError
from deerflow.mcp.base import Limits, McpTool, ToolHints

MAX_NAME_CHARS = 64
"""What all providers allow."""
MAX_DEPTH = 30
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_CHARS = 8
_FINGERPRINT_BYTES = 16
_WORDS = frozenset({"description", "title"})
"""Keys of a schema whose texts are only read."""
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
    """Return a tool as a model may see it; an `McpError` says why it may not."""
    plain, nodes = plain_schema(schema, limits.schema_nodes)
    plain = _words(plain)
    call_name = model_name(f"{server}_{name}" if with_prefix else name)
    fallback = f"{name[:MAX_NAME_CHARS]} of the MCP server {server}."
    text = neutralise(visible_words(_clip(description.strip(), limits.description_chars) or fallback))
    # Not with the name that the model calls it by: whether that has a prefix is the operator's choice.
    whole = orjson.dumps([name, text, plain, _flags(hints)], option=orjson.OPT_SORT_KEYS)
    mark = hashlib.blake2b(whole, digest_size=_FINGERPRINT_BYTES).hexdigest()
    return McpTool(server, name, call_name, text, plain, hints, mark, nodes)


def _words(node: Any, key: str = "") -> Any:
    """Return a schema whose descriptions are mere words; all other texts must be that already."""
    match node:
        case Mapping():
            return {_same(name): _words(value, name) for name, value in node.items()}
        case list():
            return [_words(item) for item in node]
        case str():
            return neutralise(visible_words(node)) if key in _WORDS else _same(node)
    return node


def _same(text: str) -> str:
    if neutralise(visible_words(text)) != text:
        raise McpError(f"its input schema has hidden characters or tags of our prompts: {text[:80]!r}")
    return text


def model_name(name: str) -> str:
    """Return a name that every provider takes; two names that differ stay different."""
    fit = _UNFIT.sub("_", name)
    if fit == name and len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.blake2b(name.encode(errors="replace"), digest_size=_HASH_CHARS // 2).hexdigest()
    return f"{fit[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{mark}"


def plain_schema(schema: object, max_nodes: int) -> tuple[dict[str, Any], int]:
    """Return a schema of an object with nothing left to look up, and how many parts it has."""
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
    """Puts what references stand for in their place."""

    def __init__(self, root: Mapping[str, Any], max_nodes: int) -> None:
        self._root = root
        self._left = self._most = max_nodes

    @property
    def nodes(self) -> int:
        """How many parts were put in place so far."""
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
                return {}  # a schema that contains itself takes anything from here on
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return self._plain({**self._target(reference), **beside}, (*within, reference))
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
