"""Reads a YAML file without trusting it: bounded, every key once, errors with their line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from deerflow.errors import ConfigError

MAX_BYTES = 5_000_000
MAX_DEPTH = 64
MAX_VALUES = 100_000

KeyPath = tuple[str | int, ...]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_PLAIN_TAGS = frozenset(_TAG + name for name in ("bool", "float", "int", "null", "str"))


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and where it says it."""

    path: Path | None
    data: dict[str, Any]
    root: Node | None = None

    def line_of(self, path: KeyPath) -> int | None:
        """Return the line on which the value at `path`, or the nearest thing around it, stands."""
        node, line = self.root, None
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            node, line = found
        return line


def read_text(path: Path) -> str:
    """Return the text of a settings file, or say what is wrong with the file."""
    try:
        if not path.is_file():
            raise ConfigError(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB, too large for settings")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} line {line}: not UTF-8 text; save the file as UTF-8") from error


def read_yaml(path: Path) -> Document:
    """Return what the YAML file at `path` says."""
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path | None = None) -> Document:
    """Return what `text` says; `path` is for messages."""
    where = str(path or "config.yaml")
    try:
        _check_nesting(text, where)
        loader = _LOADER(text)
        try:
            root = loader.get_single_node()
            data = _Builder(loader, where).build(root) if root else {}
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_explain(error, where)) from error
    except yaml.YAMLError as error:  # a character that no YAML file may have
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: the top level must be `key: value` lines, such as `log_level: info`")
    return Document(path, data, root)


def _check_nesting(text: str, where: str) -> None:
    """Refuse what would exhaust the stack, before anything recursive sees it."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or count > 2 * MAX_VALUES:
            limit = f"{MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_VALUES} values"
            raise ConfigError(f"{where} line {event.start_mark.line + 1}: more than {limit}")


_Built = tuple[Any, int, int]
"""A value, how many values it is made of, and how many levels."""


class _Builder:
    """Turns nodes into plain values; counts them as if every alias were written out."""

    def __init__(self, loader: Any, where: str) -> None:
        self._loader = loader
        self._where = where
        self._done: dict[int, _Built] = {}
        """What every node became, by the node's identity."""
        self._open: set[int] = set()

    def build(self, node: Node) -> Any:
        return self._build(node)[0]

    def _build(self, node: Node) -> _Built:
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            raise self._error(node, "an alias must not contain itself")
        self._open.add(id(node))
        built: _Built
        match node:
            case MappingNode():
                built = self._mapping(node)
            case SequenceNode():
                built = self._sequence(node)
            case _:
                built = (self._scalar(node), 1, 1)
        if built[1] > MAX_VALUES or built[2] > MAX_DEPTH:
            raise self._error(node, f"aliases make this more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        self._open.discard(id(node))
        self._done[id(node)] = built
        return built

    def _sequence(self, node: SequenceNode) -> _Built:
        if node.tag != _TAG + "seq":
            raise self._error(node, f"the tag {node.tag} is not allowed")
        items = [self._build(item) for item in node.value]
        return [value for value, _, _ in items], *_extent(items)

    def _mapping(self, node: MappingNode) -> _Built:
        if node.tag != _TAG + "map":
            raise self._error(node, f"the tag {node.tag} is not allowed")
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        parts = []
        for key_node, value_node in node.value:
            built = self._build(value_node)
            parts.append(built)
            if key_node.tag == _MERGE:
                for source in self._sources(value_node, built[0]):
                    merged = {**source, **merged}
                continue
            key = self._key(key_node)
            if key in own:
                raise self._error(key_node, f"the key {key!r} stands here a second time")
            own[key] = built[0]
        return {**merged, **own}, *_extent(parts)

    def _sources(self, node: Node, value: Any) -> Iterator[dict[str, Any]]:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise self._error(node, "`<<` takes a mapping or a list of mappings")
            yield source

    def _key(self, node: Node) -> str:
        """Return a key as it was written: `on` and `8080` are names here, not values."""
        if not isinstance(node, ScalarNode):
            raise self._error(node, "a key must be a single word or text")
        return str(node.value)

    def _scalar(self, node: Node) -> Any:
        if node.tag == _TAG + "timestamp":
            return node.value  # dates name versions of an API, so they stay as they were written
        if node.tag not in _PLAIN_TAGS:
            raise self._error(node, f"the tag {node.tag} is not allowed")
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            raise self._error(node, f"this number cannot be read: {str(node.value)[:40]!r}") from error

    def _error(self, node: Node, message: str) -> ConfigError:
        return ConfigError(f"{self._where} line {node.start_mark.line + 1}: {message}")


def _extent(parts: list[_Built]) -> tuple[int, int]:
    return 1 + sum(size for _, size, _ in parts), 1 + max((height for _, _, height in parts), default=0)


def _child(node: Node | None, part: str | int) -> tuple[Node, int] | None:
    """Return the node below `node` that `part` names, and the line it starts on."""
    match node:
        case MappingNode():
            for key, value in node.value:
                if isinstance(key, ScalarNode) and key.value == part:
                    return value, key.start_mark.line + 1
        case SequenceNode() if isinstance(part, int) and part < len(node.value):
            return node.value[part], node.value[part].start_mark.line + 1
    return None


def _explain(error: yaml.MarkedYAMLError, where: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = f" line {mark.line + 1}" if mark else ""
    problem = error.problem or error.context or "not YAML"
    if "character that cannot start any token" in problem or "'\\t'" in problem:
        problem += "; indent with spaces, never tabs, and put texts with special characters in quotes"
    return f"{where}{line}: {problem}"
