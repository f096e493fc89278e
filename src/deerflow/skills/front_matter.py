"""Reads the YAML front matter of Markdown files, with line numbers; repairs common mistakes on request.

Many public skills have texts such as `description: Use when: …` without quotes, which is no YAML. Such a
value is read as the text that it looks like.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from deerflow.config.yaml_file import is_yaml, load_plain
from deerflow.errors import ConfigError

FRONT_MATTER = re.compile(
    r"\A\ufeff?(?:[ \t]*\r?\n)*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL
)
_KEY_LINE = re.compile(r"(?P<key>[^\s#'\"\[\]{},&*!|>%@`:-][^:]*?)[ \t]*:(?:[ \t]+(?P<value>\S.*))?[ \t]*\Z")
_NO_YAML = (
    yaml.YAMLError, ConfigError, ValueError, OverflowError, LookupError, AttributeError, TypeError,
)  # fmt: skip
"""Exceptions of the parser; it raises the last five for values that do not match their tag."""


class FrontMatterError(ValueError):
    """A front matter that cannot be used, with the line in the file if it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The keys of a front matter and their lines in the file."""

    keys: Mapping[str, Any]
    lines: Mapping[str, int]
    repaired: tuple[str, ...] = ()
    """Keys whose values are no YAML and were read as plain text."""
    repeated: tuple[str, ...] = ()
    """Keys that are there more than once; the last one counts."""


def front_matter(text: str) -> Mapping[str, Any]:
    """Return the YAML between the first two `---` lines; `ValueError` says what is wrong."""
    return _parsed(*_found(text)).keys


def repaired_front_matter(text: str) -> FrontMatter:
    """Return the front matter; a value that is no YAML is read as plain text where that is possible."""
    matter, first_line = _found(text)
    try:
        return _parsed(matter, first_line)
    except FrontMatterError:
        repaired, keys = _repaired(matter)
        if not keys:
            raise
    found = _parsed(repaired, first_line)
    return FrontMatter(found.keys, found.lines, tuple(keys), found.repeated)


def _found(text: str) -> tuple[str, int]:
    """Return the text between the `---` lines and the number of its first line."""
    match = FRONT_MATTER.match(text)
    if match is None:
        first = text.lstrip("\ufeff \t\r\n").partition("\n")[0].rstrip()
        if first == "---":
            raise FrontMatterError("its front matter has no end: write a line '---' after the keys", 1)
        raise FrontMatterError(
            "it has no front matter; begin with '---', 'name:', 'description:' and '---'", 1
        )
    return match[1].replace("\r\n", "\n"), text.count("\n", 0, match.start(1)) + 1


def _parsed(matter: str, first_line: int) -> FrontMatter:
    try:
        keys = load_plain(matter, "it")
    except _NO_YAML as error:
        reason = f"its front matter is no YAML: {' '.join(str(error).split())}"
        raise FrontMatterError(reason, _line_of(error, matter, first_line)) from error
    if not isinstance(keys, dict):
        raise FrontMatterError(
            "its front matter has no keys; write 'name: …' and 'description: …'", first_line
        )
    found = list(_key_lines(matter, first_line))
    names = [name for name, _ in found]
    repeated = tuple(name for name in dict.fromkeys(names) if names.count(name) > 1)
    texts = {key: value for key, value in keys.items() if isinstance(key, str)}
    return FrontMatter(texts, dict(found), (), repeated)


def _line_of(error: Exception, matter: str, first_line: int) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        # The parser marks the end of an unclosed quote or bracket, which may be after the last line.
        return first_line + min(int(mark.line), matter.count("\n"))
    position = getattr(error, "position", None)
    return first_line + (matter.count("\n", 0, position) if isinstance(position, int) else 0)


def _key_lines(matter: str, first_line: int) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(matter.split("\n"), first_line):
        if match := _KEY_LINE.match(line):
            yield match["key"], number


def _repaired(matter: str) -> tuple[str, list[str]]:
    """Return the front matter with quotes around values that are no YAML, and the keys of these values."""
    kept: list[str] = []
    keys: list[str] = []
    for part in _parts(matter.split("\n")):
        text = "\n".join(part)
        match = _KEY_LINE.match(part[0])
        if match is None or is_yaml(text):
            kept += part
        elif match["value"] is None:  # a mapping: one of its values is to be repaired
            inner, below = _repaired(textwrap.dedent("\n".join(part[1:])))
            kept += [part[0], *(f"  {line}" if line else line for line in inner.split("\n"))]
            keys += [f"{match['key']}.{key}" for key in below]
        elif (value := _as_text([match["value"], *part[1:]])) is not None:
            # Empty lines replace the ones that were joined, so that the line numbers stay.
            kept += [f"{match['key']}: {json.dumps(value, ensure_ascii=False)}", *([""] * (len(part) - 1))]
            keys.append(match["key"])
        else:
            kept += part
    return "\n".join(kept), keys


def _parts(lines: list[str]) -> Iterator[list[str]]:
    """Yield each key's line with the indented lines below it."""
    part: list[str] = []
    for line in lines:
        if part and line and not line[0].isspace():
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _as_text(lines: list[str]) -> str | None:
    """Return a value as one line of text; None for a list, mapping or tag, which is not meant as text."""
    value = " ".join(line.strip() for line in lines if line.strip())
    closing = {"[": "]", "{": "}"}.get(value[0])
    if not value.isprintable():  # a control character: better not read than read without it
        return None
    if value[0] in "!|>" or (closing is not None and closing not in value[1:-1]):
        return None
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
