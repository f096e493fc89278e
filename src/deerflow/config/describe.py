"""Describes the allowed values of a setting for error messages and the reference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from deerflow.config.section import Section
from deerflow.config.yaml_file import KeyPath

_BASIC = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Any: "anything"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


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
