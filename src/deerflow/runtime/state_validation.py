"""Validates external values against the channels of a thread's state."""

from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from deerflow.agents import ThreadState
from deerflow.errors import InvalidInputError
from deerflow.runtime.messages_in import parse_messages

_SHAPES = {
    key: TypeAdapter(shape)
    for key, shape in get_type_hints(ThreadState).items()
    if key not in ("messages", "jump_to", "structured_response")
}
"""The excluded keys are LangChain's own."""
KNOWN = frozenset({*_SHAPES, "messages"})


def fitting(values: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return validated values, with messages parsed; `InvalidInputError` names the invalid one.

    Args:
        where: The field that holds the values, for the error.
    """
    unknown = sorted(set(values) - KNOWN)
    if unknown:
        raise InvalidInputError(f"{where} has unknown keys {unknown}; known are {sorted(KNOWN)}")
    return {key: _fitting(key, value, where) for key, value in values.items()}


def _fitting(key: str, value: Any, where: str) -> Any:
    if key == "messages":
        return parse_messages(value, where=where)
    try:
        return _SHAPES[key].validate_python(value, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, (where, key, *wrong["loc"])))
        raise InvalidInputError(f"{place} does not fit the state: {wrong['msg']}") from error
