"""Serialises graph output to JSON without raising."""

import base64
from collections.abc import Mapping
from typing import Any

import orjson
from langchain_core.messages import BaseMessage
from pydantic import BaseModel

OPTIONS = orjson.OPT_NON_STR_KEYS
_MAX_DEPTH = 40


def to_json(value: Any) -> bytes:
    """Return `value` as JSON; what JSON cannot hold becomes text."""
    try:
        return orjson.dumps(value, default=plain, option=OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return orjson.dumps(_cleaned(value, ()), option=OPTIONS)


def message_json(message: BaseMessage) -> bytes:
    """Return a message as clients see it: without the image data of hidden messages."""
    if "hide_from_ui" in message.additional_kwargs:
        return to_json(visible_fields(message))
    try:  # fast path: a long conversation has many messages
        return orjson.dumps(message.__dict__, default=plain, option=OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return to_json(message.__dict__)


def visible_fields(message: BaseMessage) -> Mapping[str, Any]:
    """Return a message's fields as clients may see them."""
    if message.additional_kwargs.get("hide_from_ui") and isinstance(message.content, list):
        shown = [block for block in message.content if not _is_inline_image(block)]
        return {**message.__dict__, "content": shown}
    return message.__dict__


def plain(value: Any) -> Any:
    """Return a JSON-serialisable replacement for a value."""
    try:
        match value:
            case BaseMessage():
                return orjson.Fragment(message_json(value))
            case BaseModel():
                return value.model_dump()
            case BaseException():
                return {"name": type(value).__name__, "message": _text_of(value)}
            case bytes() | bytearray():
                return base64.b64encode(value).decode()
            case set() | frozenset():
                return list(value)
            case Mapping():
                return dict(value)
    except Exception:  # reading a tool's objects may raise anything; the event must still be sent
        pass
    return _text_of(value)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:  # any `__str__` may raise, too
        return f"<{type(value).__name__}>"


def _is_inline_image(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "image_url":
        return False
    image = block.get("image_url")
    url = image.get("url", "") if isinstance(image, dict) else image
    return isinstance(url, str) and url.startswith("data:")


def _cleaned(value: Any, above: tuple[int, ...]) -> Any:
    """Return a copy that orjson accepts: it fixes large integers, broken text and recursive nesting.

    Args: `above` are the ids of the enclosing values.
    """
    if len(above) > _MAX_DEPTH or id(value) in above:
        return "…"
    inside = (*above, id(value))
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case bool() | None:
            return value
        case float():
            return float(value)  # orjson accepts no subclasses, such as NumPy's
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case BaseMessage():
            return _cleaned(visible_fields(value), inside)
        case dict():
            return {str(_cleaned(key, inside)): _cleaned(item, inside) for key, item in dict.items(value)}
        case list() | tuple():
            return [_cleaned(item, inside) for item in value]
        case _:
            return _cleaned(plain(value), inside)
