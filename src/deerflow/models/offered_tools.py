"""The tools offered in one model call, to decide whether a JSON value is a call of one of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS = (
    "arguments",
    "parameters",
    "args",
    "params",
    "input",
    "tool_input",
    "action_input",
    "kwargs",
)
WRAPPERS = ("function", "function_call", "tool_call")
BESIDE = frozenset({"id", "type", "index", "call_id"})
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call of an offered tool, with arguments that match its schema."""

    name: str
    arguments: Json


class OfferedTools:
    """Names and schemas of the tools, from the formats in which they are sent to providers."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self._schemas: dict[str, Json] = {}
        for tool in tools:
            if not isinstance(tool, Mapping):
                continue
            about = tool.get("function", tool)
            schema = about.get("parameters") or about.get("input_schema") or {}
            if isinstance(about.get("name"), str) and isinstance(schema, Mapping):
                self._schemas[about["name"]] = schema

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def has(self, name: str) -> bool:
        """Return whether a tool of this name is offered."""
        return name in self._schemas

    def calls_in(self, value: object) -> Sequence[TextCall] | None:
        """Return the calls that a JSON value represents; None if any part of it is not a call."""
        if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        items = value if isinstance(value, list) else [value]
        calls = [self._call(item) for item in items]
        return [call for call in calls if call] if calls and all(calls) else None

    def _call(self, item: object) -> TextCall | None:
        if not isinstance(item, Mapping):
            return None
        for key in WRAPPERS:
            if isinstance(item.get(key), Mapping):
                return self._call(item[key])
        name_key = next((key for key in NAME_KEYS if isinstance(item.get(key), str)), None)
        name = item[name_key] if name_key else None
        if name_key is None or name not in self._schemas:
            return None
        held = next((key for key in ARGUMENT_KEYS if key in item), None)
        beside = {key: value for key, value in item.items() if key != name_key and key not in BESIDE}
        given = item[held] if held else beside
        if isinstance(given, str):
            given = _object_in(given)
        arguments = fitted(given, self._schemas[name]) if isinstance(given, Mapping) else None
        return TextCall(name, arguments) if arguments is not None else None


def fitted(given: Json, schema: Json) -> Json | None:
    """Return the arguments converted to match a schema; None if they do not match.

    A nearly correct name is corrected, and a `description`, which is only for users, may be missing.
    """
    properties: Json = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if name in properties]
    arguments = {key: value for key, value in given.items() if key in properties}
    missing = [name for name in required if name not in arguments]
    for key in [key for key in given if key not in properties]:
        name = next((name for name in missing if name in key.lower() or key.lower() in name), None)
        if name is None:
            if schema.get("additionalProperties"):
                arguments[key] = given[key]
                continue
            return None
        arguments[name] = given[key]
        missing.remove(name)
    if "description" in missing:
        arguments["description"] = ""
        missing.remove("description")
    typed = {key: _typed(value, properties.get(key, {}), schema) for key, value in arguments.items()}
    return typed if not missing and _Misfit not in map(type, typed.values()) else None


class _Misfit:
    """Marks a value that does not match its schema."""


def _typed(value: Any, about: Json, schema: Json) -> Any:
    """Return a value converted to the type in its schema; a `_Misfit` if that is not possible."""
    kinds = _kinds(about, schema)
    if "enum" in about and value not in about["enum"]:
        return _Misfit()
    if not kinds or any(_is_of(value, kind) for kind in kinds):
        return value
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except ValueError:
            return _Misfit()
        return read if any(_is_of(read, kind) for kind in kinds) else _Misfit()
    return _Misfit()


def _kinds(about: Json, schema: Json) -> list[str]:
    if "$ref" in about:
        about = (schema.get("$defs") or {}).get(str(about["$ref"]).rpartition("/")[2], {})
    if isinstance(about.get("anyOf"), list):
        return [kind for each in about["anyOf"] for kind in _kinds(each, schema)]
    kind = about.get("type")
    return [kind] if isinstance(kind, str) else list(kind or ())


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and kind == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, ()))


def _object_in(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return None
