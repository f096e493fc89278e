"""Reads untrusted YAML files: bounded size, no duplicate keys, errors with line numbers."""

import re
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
_KEY = re.compile(r"[\s-]*([A-Za-z_][\w-]*):")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_PLAIN_TAGS = frozenset(_TAG + name for name in ("bool", "float", "int", "null", "str"))
_NO_VALUE = (ValueError, OverflowError, LookupError, AttributeError, TypeError)
"""Exceptions of the parser for a value that does not match its tag, or a number that is too large."""


@dataclass(frozen=True, slots=True)
class Document:
    """The contents of a file, and their line numbers."""

    path: Path | None
    data: dict[str, Any]
    root: Node | None = None

    def line_of(self, path: KeyPath) -> int | None:
        """Return the line of the value at `path`, or of its nearest parent."""
        node, line = self.root, None
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            node, line = found
        return line

    def at(self, path: KeyPath) -> str:
        """Return ` (line 3)` for a message about the value at `path`; empty if the line is unknown."""
        line = self.line_of(path)
        return f" (line {line})" if line else ""


def read_text(path: Path) -> str:
    """Return the text of a settings file; raise ConfigError if it cannot be read."""
    try:
        if not path.is_file():
            raise ConfigError(_no_file(path))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"{path} cannot be read: {why}; let the user that runs DeerFlow read it") from error
    if len(content) > MAX_BYTES:
        limit = f"{MAX_BYTES // 1_000_000} MB"
        raise ConfigError(f"{path} is larger than {limit}, too large for settings; name the right file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = "UTF-16" if content.startswith(_UTF16_MARKS) else f"the byte 0x{content[error.start]:02x}"
        raise ConfigError(f"{path} line {line}: {found} is not UTF-8 text; save the file as UTF-8") from error


def _no_file(path: Path) -> str:
    if path.is_symlink():
        return f"{path} is a link to {path.readlink()}, which does not exist; correct or remove the link"
    kind = "a folder" if path.is_dir() else "not a regular file"
    return f"{path} is {kind}; put a file of settings there, or name another one"


def read_yaml(path: Path) -> Document:
    """Return the contents of the YAML file at `path`."""
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path | None = None) -> Document:
    """Return the contents of a YAML text; `path` is for messages."""
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
        raise ConfigError(_explain(error, where, text)) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise ConfigError(_explain_character(error, where, text)) from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        raise ConfigError(f"{where} is {kind}; it must be `key: value` lines, such as `log_level: info`")
    return Document(path, data, root)


def load_plain(text: str, where: str) -> Any:
    """Return the value of a small text such as a front matter, in YAML's types; aliases stay shared.

    Checks the nesting first: the pure Python parser takes quadratic time for nested brackets, and the C
    parser overflows its stack.
    """
    _check_nesting(text, where)
    return yaml.load(text, Loader=_LOADER)


def is_yaml(text: str) -> bool:
    """Return whether a small text can be parsed."""
    try:
        _check_nesting(text, "it")
    except (yaml.YAMLError, ConfigError):
        return False
    return True


def compose(text: str) -> Node | None:
    """Return the YAML nodes of a text, which have line numbers."""
    loader = _LOADER(text)
    try:
        node: Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def _check_nesting(text: str, where: str) -> None:
    """Reject nesting that would exhaust the stack, before any recursive code runs."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or count > 2 * MAX_VALUES:
            limit = f"{MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_VALUES} values"
            line = event.start_mark.line + 1
            raise ConfigError(f"{where} line {line}: more than {limit}; settings need far fewer, write less")


_Built = tuple[Any, int, int]
"""A value, the number of values in it, and its depth."""


class _Builder:
    """Converts nodes to plain values; counts them as if every alias were expanded."""

    def __init__(self, loader: Any, where: str) -> None:
        self._loader = loader
        self._where = where
        self._done: dict[int, _Built] = {}
        """The result for every converted node, by the node's identity."""
        self._open: set[int] = set()

    def build(self, node: Node) -> Any:
        return self._build(node)[0]

    def _build(self, node: Node) -> _Built:
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            raise self._error(node, "an alias must not contain itself; write the value out")
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
            limit = f"{MAX_VALUES} values or {MAX_DEPTH} levels"
            raise self._error(node, f"aliases make this more than {limit}; write the few that are meant")
        self._open.discard(id(node))
        self._done[id(node)] = built
        return built

    def _sequence(self, node: SequenceNode) -> _Built:
        if node.tag != _TAG + "seq":
            raise self._error(node, f"the tag {node.tag} is not allowed; write a plain value")
        items = [self._build(item) for item in node.value]
        return [value for value, _, _ in items], *_extent(items)

    def _mapping(self, node: MappingNode) -> _Built:
        if node.tag != _TAG + "map":
            raise self._error(node, f"the tag {node.tag} is not allowed; write a plain value")
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
                raise self._error(key_node, f"the key {key!r} stands here a second time; keep one")
            own[key] = built[0]
        return {**merged, **own}, *_extent(parts)

    def _sources(self, node: Node, value: Any) -> Iterator[dict[str, Any]]:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise self._error(node, "`<<` takes a mapping or a list of mappings")
            yield source

    def _key(self, node: Node) -> str:
        """Return a key as it is written: `on` and `8080` are names here, not values."""
        if not isinstance(node, ScalarNode):
            raise self._error(node, "a key must be a single word or text")
        return str(node.value)

    def _scalar(self, node: Node) -> Any:
        if node.tag == _TAG + "timestamp":
            return node.value  # dates may be API versions, so they stay text
        if node.tag not in _PLAIN_TAGS:
            raise self._error(node, f"the tag {node.tag} is not allowed; write a plain value")
        try:
            return self._loader.construct_object(node)
        except _NO_VALUE as error:
            raise self._error(node, f"this value cannot be read: {str(node.value)[:40]!r}") from error

    def _error(self, node: Node, message: str) -> ConfigError:
        return ConfigError(f"{self._where} line {node.start_mark.line + 1}: {message}")


def _extent(parts: list[_Built]) -> tuple[int, int]:
    return 1 + sum(size for _, size, _ in parts), 1 + max((height for _, _, height in parts), default=0)


def _child(node: Node | None, part: str | int) -> tuple[Node, int] | None:
    """Return the child of `node` that `part` names, and its first line."""
    match node:
        case MappingNode():
            for key, value in node.value:
                if isinstance(key, ScalarNode) and key.value == part:
                    return value, key.start_mark.line + 1
        case SequenceNode() if isinstance(part, int) and part < len(node.value):
            return node.value[part], node.value[part].start_mark.line + 1
    return None


_HINTS = {
    "cannot start any token": "indent with spaces, never tabs; put texts with special characters in quotes",
    "'\\t'": "indent with spaces, never tabs",
    "another document": "a file of settings is one document: take the line `---` out",
    "mapping values are not allowed": "write one `key: value` a line, and put texts with `: ` in quotes",
    "end of stream": "close the quote or bracket that was opened",
    "expected ',' or": "close the bracket that was opened",
    "alias": "name an anchor that stands above",
}
"""Remedies, by a part of the parser's error message."""
_HINT = "let keys of one level start in the same column, and close quotes and brackets"


def _explain(error: yaml.MarkedYAMLError, where: str, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "not YAML"
    hint = next((hint for words, hint in _HINTS.items() if words in problem), _HINT)
    line = f" line {mark.line + 1}{_key_on(text, mark.line)}" if mark else ""
    return f"{where}{line}: {problem}; {hint}"


def _explain_character(error: yaml.YAMLError, where: str, text: str) -> str:
    position = getattr(error, "position", None)
    line = f" line {text.count(chr(10), 0, position) + 1}" if isinstance(position, int) else ""
    letter = f"U+{ord(text[position]):04X} " if isinstance(position, int) and position < len(text) else ""
    return f"{where}{line}: the character {letter}is not allowed in YAML; take it out"


def _key_on(text: str, number: int) -> str:
    """Return the key in a line for a message; never the value, which may be a secret."""
    lines = text.split("\n")
    found = _KEY.match(lines[number]) if number < len(lines) else None
    return f" ({found[1]}:)" if found else ""
