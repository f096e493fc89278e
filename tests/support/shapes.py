"""Shapes of JSON for tests: which fields an answer has, and of which type.

    assert misfits({"id": "a", "size": 3}, {"id": str, "size": int, "note?": str}) == []

A dict lists the fields that are needed (`name?` may be absent), a list of one shape stands for a list of
any length (`[shape, ...]`: not empty), a tuple for one of several shapes, a type for its values, and anything
else for itself.
"""

from typing import Any


def misfits(value: Any, shape: Any, at: str = "$") -> list[str]:
    """Return where `value` is not as `shape` says; nothing when it fits."""
    match shape:
        case dict():
            return _misfits_in_dict(value, shape, at)
        case list():
            if not isinstance(value, list) or (not value and ... in shape) or (value and not shape):
                return [f"{at} is {value!r:.80}, no list of {shape!r:.80}"]
            return [wrong for i, item in enumerate(value) for wrong in misfits(item, shape[0], f"{at}[{i}]")]
        case tuple():
            is_fitting = any(not misfits(value, one, at) for one in shape)
            return [] if is_fitting else [f"{at} is {value!r:.80}, none of {shape!r:.80}"]
        case type():
            return [] if _is_of_type(value, shape) else [f"{at} is {value!r:.80}, no {shape.__name__}"]
    return [] if value == shape and type(value) is type(shape) else [f"{at} is {value!r:.80}, not {shape!r}"]


def _misfits_in_dict(value: Any, shape: dict[str, Any], at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at} is {value!r:.80}, no object"]
    wrong: list[str] = []
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if name in value:
            wrong += misfits(value[name], inner, f"{at}.{name}")
        elif not key.endswith("?"):
            wrong.append(f"{at}.{name} is missing")
    return wrong


def _is_of_type(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, wanted) and (wanted is bool or wanted is object or not isinstance(value, bool))
