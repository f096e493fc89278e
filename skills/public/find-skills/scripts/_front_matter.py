"""Reads the front matter of a SKILL.md: the part of YAML that skills use, with the standard library only.

The same file is in several skills, because each must work alone.
"""

import re
from dataclasses import dataclass, field
from typing import Any

KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*:(?:\s+(.*)|\s*)$")
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


@dataclass
class Document:
    """A SKILL.md in parts; `problems` are pairs of line number and text."""

    matter: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    body_line: int = 1
    problems: list[tuple[int, str]] = field(default_factory=list)


def parse(text: str) -> Document:
    """Return the parts of a SKILL.md; what cannot be read is a problem, not an exception."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    document = Document()
    if lines[0].rstrip() != "---":
        document.body = "\n".join(lines)
        document.problems.append((1, "the file must begin with a line '---' (front matter)"))
        return document
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        document.problems.append((1, "the front matter has no closing line '---'"))
        return document
    document.body, document.body_line = "\n".join(lines[end + 1 :]), end + 2
    position = 1
    while position < end:
        position = _entry(lines, position, end, document)
    return document


def _entry(lines: list[str], position: int, end: int, document: Document) -> int:
    """Read one top-level key; return the position behind it."""
    line = lines[position]
    if not line.strip() or line.lstrip().startswith("#"):
        return position + 1
    match = None if line[0].isspace() else KEY.match(line.rstrip())
    if match is None:
        document.problems.append((position + 1, f"{line.strip()[:60]!r} is not 'key: value'"))
        return position + 1
    nested_end = position + 1
    while nested_end < end and (not lines[nested_end].strip() or lines[nested_end][0] in " \t-"):
        nested_end += 1
    nested = lines[position + 1 : nested_end]
    key, value = match[1], (match[2] or "").strip()
    if key in document.matter:
        document.problems.append((position + 1, f"the key '{key}' occurs twice"))
    document.matter[key] = _value(value, nested, position + 1, document)
    return nested_end


def _value(value: str, nested: list[str], number: int, document: Document) -> Any:
    inner = [line.strip() for line in nested if line.strip() and not line.lstrip().startswith("#")]
    if re.fullmatch(r"[|>][+-]?", value):
        folded = " ".join(inner) if value[0] == ">" else "\n".join(line.strip() for line in nested)
        return folded.strip()
    if value:
        return _scalar(" ".join([value, *inner]), number, document)
    if inner and all(line.startswith("- ") or line == "-" for line in inner):
        return [_scalar(line[1:].strip(), number, document) for line in inner]
    mapping = {}
    for offset, line in enumerate(nested, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = KEY.match(line.strip())
        if match is None:
            document.problems.append((number + offset, f"{line.strip()[:60]!r} is not 'key: value'"))
        else:
            mapping[match[1]] = _scalar((match[2] or "").strip(), number + offset, document)
    return mapping or None


def _scalar(text: str, number: int, document: Document) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part.strip(), number, document) for part in text[1:-1].split(",") if part.strip()]
    if text[:1] in ("'", '"'):
        quote = text[0]
        if len(text) < 2 or not text.endswith(quote):
            document.problems.append((number, f"the quotation that begins with {text[:20]!r} does not end"))
            return text[1:]
        inner = text[1:-1]
        if quote == "'":
            return inner.replace("''", "'")
        return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[0]), inner)
    plain = re.split(r"\s+#", text, maxsplit=1)[0].strip()
    if ": " in plain:
        document.problems.append((number, "a value with ': ' in it must be quoted; strict readers refuse it"))
    return plain
