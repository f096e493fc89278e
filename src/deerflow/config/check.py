"""Validates file contents as settings; the error names every invalid value and what is allowed there."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deerflow.config.describe import Slot, slot_at
from deerflow.config.secrets import shown
from deerflow.config.section import Section
from deerflow.config.variables import variable_in
from deerflow.config.yaml_file import Document, KeyPath
from deerflow.errors import ConfigError

SectionType = TypeVar("SectionType", bound=Section)

MAX_NAMED = 50


def check(
    section: type[SectionType],
    data: dict[str, Any],
    document: Document,
    *,
    place_in_file: Callable[[KeyPath], KeyPath] = lambda path: path,
) -> SectionType:
    """Return `data` as a `section`; raise ConfigError for invalid values.

    Args:
        place_in_file: Maps a path in `data`, which may lack entries, to the path in `document`.

    """
    try:
        return section.model_validate(data)
    except ValidationError as error:
        found = [
            _explain(section, detail, place_in_file(_path(detail)), document)
            for detail in error.errors(include_url=False)
        ]
    lines = [text for _, text in sorted(found, key=lambda item: item[0])]
    if len(lines) > MAX_NAMED:
        lines = [*lines[:MAX_NAMED], f"… and {len(lines) - MAX_NAMED} more"]
    where = str(document.path or "settings")
    raise ConfigError(f"{where}: {lines[0]}" if len(lines) == 1 else "\n  ".join([f"{where}:", *lines]))


def dotted(path: KeyPath) -> str:
    """Return a path in dotted notation: `models[1].timeout`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _path(detail: ErrorDetails) -> KeyPath:
    return tuple(part for part in detail["loc"] if part != "[key]")


def _explain(
    section: type[Section], detail: ErrorDetails, path: KeyPath, document: Document
) -> tuple[int, str]:
    """Return the line of an invalid value and a message about it."""
    line = document.line_of(path)
    at = f" (line {line})" if line else ""
    slot = slot_at(section, _path(detail))
    own_words = str(detail.get("ctx", {}).get("error", "")) if detail["type"] == "value_error" else ""
    if detail["type"] == "missing":
        needed = (slot.description or slot.allowed) if slot else "it is needed"
        text = f"{dotted(path)} is missing{at}: {needed}"
    elif not path or (own_words and isinstance(detail["input"], dict | list | tuple | Section)):
        text = f"{dotted(path)}{at}: {own_words or detail['msg']}".removeprefix(": ")
    else:
        raw = _raw_at(document.data, path, detail["input"])
        value = f"${variable_in(raw)}" if variable_in(raw) else shown(raw, path)
        text = f"{dotted(path)} is {value}{at}; {own_words or f'allowed: {_allowed(slot, detail)}'}"
    return line or 0, text


def _allowed(slot: Slot | None, detail: ErrorDetails) -> str:
    return slot.allowed if slot else detail["msg"].removeprefix("Input should be ")


def _raw_at(data: Any, path: KeyPath, fallback: object) -> object:
    """Return the raw value at `path` in the file: a variable's name may be shown, its value may not."""
    for part in path:
        match data:
            case dict() if part in data:
                data = data[part]
            case list() if isinstance(part, int) and part < len(data):
                data = data[part]
            case _:
                return fallback
    return data
