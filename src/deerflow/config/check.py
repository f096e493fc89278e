"""Validates settings: errors name every invalid value and what is allowed; keys without effect are listed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from deerflow.config.effect import REMOVED, WAITING
from deerflow.config.secrets import shown
from deerflow.config.section import Section, is_listed, unused_paths
from deerflow.config.variables import variable_in
from deerflow.config.yaml_file import Document, KeyPath
from deerflow.errors import ConfigError

SectionType = TypeVar("SectionType", bound=Section)

MAX_NAMED = 50


@dataclass(frozen=True, slots=True)
class Slot:
    """The type, constraints and description of one setting."""

    annotation: Any
    metadata: Sequence[Any] = ()
    description: str = ""

    @property
    def allowed(self) -> str:
        """A description of the allowed values."""
        return ", ".join([_words(self.annotation), *_bounds(self.metadata)])


def check(
    section: type[SectionType],
    data: dict[str, Any],
    document: Document,
    *,
    path_in_file: Callable[[KeyPath], KeyPath] = lambda path: path,
) -> SectionType:
    """Return `data` as a `section`; raise ConfigError for invalid values.

    Args:
        path_in_file: Maps a path in `data`, which may lack entries, to the path in `document`.

    """
    try:
        return section.model_validate(data)
    except ValidationError as error:
        found = [
            _explain(section, detail, path_in_file(_path(detail)), document)
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


@dataclass(frozen=True, slots=True)
class UnusedKey:
    """A key without effect."""

    path: KeyPath
    line: int | None
    is_known: bool
    """Whether it is a known setting that has no effect in this version."""
    meant: str | None
    """The full name of the setting that was probably meant."""

    @property
    def key(self) -> str:
        """The key in dotted notation: `title.max_wrds`."""
        return dotted(self.path)

    def __str__(self) -> str:
        notes = [f"line {self.line}"] if self.line else []
        notes += [f"did you mean {self.meant}?"] if self.meant else []
        return f"{self.key} ({'; '.join(notes)})" if notes else self.key


def unused_keys(section: Section, line_of: Callable[[KeyPath], int | None]) -> list[UnusedKey]:
    """Return the keys without effect below `section`, which was read from a file."""
    kind = type(section)
    found = (_unused(kind, path, line_of(path)) for path in unused_paths(section, WAITING))
    return [unused for unused in found if unused is not None]


def _unused(section: type[Section], path: KeyPath, line: int | None) -> UnusedKey | None:
    if is_listed(path, WAITING) or is_listed(path, REMOVED):
        return UnusedKey(path, line, is_known=True, meant=None)
    above = path[:-1]
    around = section_at(section, above)
    names = [
        field.alias or name
        for name, field in (around.model_fields if around else {}).items()
        if not is_listed((*above, name), WAITING)
    ]
    # Open sections pass unknown keys on; only a key that closely resembles a known one is reported.
    is_open = around is not None and around.passes_extra_keys
    close = get_close_matches(str(path[-1]), names, n=1, cutoff=0.8 if is_open else 0.6)
    if is_open and not close:
        return None
    return UnusedKey(path, line, is_known=False, meant=dotted((*above, close[0])) if close else None)


_BASIC = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Any: "anything"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def slot_at(section: type[Section], path: KeyPath) -> Slot | None:
    """Return the slot at `path` below `section`; None if any value is allowed there."""
    slot: Slot | None = Slot(section)
    for part in path:
        slot = _below(_plain(slot.annotation), part) if slot else None
    return slot


def section_at(section: type[Section], path: KeyPath) -> type[Section] | None:
    """Return the section at `path` below `section`; None if there is no section."""
    slot = slot_at(section, path)
    found: Any = _plain(slot.annotation) if slot else None
    return found if _is_section(found) else None


def slot_of(field: FieldInfo) -> Slot:
    """Return the slot of a section's field."""
    return Slot(field.annotation, field.metadata, field.description or "")


def sections_in(annotation: Any) -> Iterator[type[Section]]:
    """Yield the section classes that a value of this type may contain."""
    if _is_section(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_in(inner)


def _below(annotation: Any, part: str | int) -> Slot | None:
    if _is_section(annotation):
        for name, field in annotation.model_fields.items():
            if part in (name, field.alias):
                return slot_of(field)
        return None
    inner = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is tuple and isinstance(part, int):
            return Slot(inner[0])
        case origin if origin is dict:
            return Slot(inner[1])
    return None


def _plain(annotation: Any) -> Any:
    """Return a type without `| None` and `Annotated`."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        rest = [inner for inner in get_args(annotation) if inner is not NoneType]
        return _plain(rest[0]) if len(rest) == 1 else annotation
    return annotation


def _words(annotation: Any) -> str:
    annotation = _plain(annotation)
    inner = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Literal:
            return _either([str(choice) for choice in inner])
        case origin if origin is tuple and inner[-1] is not Ellipsis:
            return f"a list of {len(inner)} {_plural(_words(inner[0]))}"
        case origin if origin is tuple and get_origin(_plain(inner[0])) is Literal:
            return f"a list of any of {', '.join(map(str, get_args(_plain(inner[0]))))}"
        case origin if origin is tuple:
            return f"a list of {_plural(_words(inner[0]))}"
        case origin if origin is dict:
            return "a mapping" if inner[1] is Any else f"a mapping of names to {_plural(_words(inner[1]))}"
    return _BASIC.get(annotation, "a mapping" if _is_section(annotation) else "anything")


def _plural(words: str) -> str:
    if words in ("text", "anything", "true or false"):
        return {"text": "texts"}.get(words, words)
    return words.removeprefix("a ") + "s"


def _either(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _bounds(metadata: Sequence[Any]) -> Iterator[str]:
    for item in metadata:
        for name, words in _BOUNDS.items():
            if (bound := getattr(item, name, None)) is not None:
                yield f"{words} {bound:g}" if bound < 10_000 else f"{words} {bound}"
        if getattr(item, "min_length", None):
            yield "not empty"
        if pattern := getattr(item, "pattern", None):
            yield "starting with /" if pattern == "^/" else f"matching {pattern}"


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)
