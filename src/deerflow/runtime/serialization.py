"""Turns what an agent does into JSON, once per message and never raising.

A thread's messages come by again and again (each `values` event holds them all), so a message is
serialised once, kept as a numbered *fragment*, and events only refer to it (see `storage.base`).
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import BaseModel

from deerflow.storage.fragments import mark

_OPTIONS = orjson.OPT_NON_STR_KEYS
_NEIGHBOURS = re.compile(rb"\x01\d+\x01(?:,\x01\d+\x01)+")
_WHOLE = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
_MOST_DEPTH = 40


def to_json(value: Any) -> bytes:
    """Return `value` as JSON; what JSON cannot hold becomes text."""
    try:
        return orjson.dumps(value, default=plain, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return orjson.dumps(_cleaned(value, ()), option=_OPTIONS)


def message_json(message: BaseMessage) -> bytes:
    """Return a message as clients see it: without image data that is hidden from people."""
    return to_json(visible_fields(message))


def visible_fields(message: BaseMessage) -> Mapping[str, Any]:
    """Return a message's fields as clients may see them."""
    if message.additional_kwargs.get("hide_from_ui") and isinstance(message.content, list):
        shown = [block for block in message.content if not _is_inline_image(block)]
        return {**message.__dict__, "content": shown}
    return message.__dict__


def plain(value: Any) -> Any:
    """Return a stand-in that JSON can hold, for a value that it cannot."""
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
        case _:
            return _text_of(value)


class Encoder:
    """Encodes the events of one run, keeping each message of its thread as one fragment."""

    def __init__(self, digests: Mapping[bytes, int]) -> None:
        self._numbers = dict(digests)
        self._next = max(self._numbers.values(), default=0) + 1
        self._seen: dict[int, tuple[object, int]] = {}
        self._before: tuple[list[BaseMessage], list[int]] = ([], [])
        self._tails: dict[tuple[str | None, str | None, int, str], tuple[object, int]] = {}
        self.fragments: dict[int, bytes] = {}
        """Every fragment this run has used so far."""
        self.fresh: list[tuple[int, bytes]] = []
        """Fragments that the log does not have yet; whoever stores them clears the list."""

    @property
    def digests(self) -> Mapping[bytes, int]:
        return self._numbers

    def encode(self, payload: Any) -> bytes:
        """Return `payload` as JSON in which whole messages are references."""
        try:
            body = orjson.dumps(self._marked(payload), default=self._refer, option=_OPTIONS)
        except (TypeError, ValueError, RecursionError):
            return to_json(payload)
        return _NEIGHBOURS.sub(_merge, body)

    def encode_chunk(self, message: BaseMessage, metadata: Mapping[str, Any]) -> bytes:
        """Return a `messages` event: a piece of text costs little more than the text itself."""
        if isinstance(message, AIMessageChunk) and _is_only_text(message):
            return b'[{"content":%b%b' % (to_json(message.content), mark([self._tail(message, metadata)]))
        return b"[%b,%b]" % (self.encode(message), mark([self._number_of(metadata, to_json)]))

    def _marked(self, payload: Any) -> Any:
        """Return a state with its messages as one piece: in a long thread they are nearly all of it."""
        messages = payload.get("messages") if type(payload) is dict else None
        if not isinstance(messages, list) or not all(type(message) in _WHOLE for message in messages):
            return payload
        # A state begins as the one before did; comparing the same objects costs next to nothing.
        before, numbers = self._before
        if messages[: len(before)] != before:
            before, numbers = [], []
        numbers = numbers + [self._number_of(message, message_json) for message in messages[len(before) :]]
        self._before = (messages.copy(), numbers)
        return {**payload, "messages": orjson.Fragment(b"[%b]" % mark(numbers))}

    def _refer(self, value: Any) -> Any:
        if isinstance(value, BaseMessageChunk) or not isinstance(value, BaseMessage):
            return plain(value)
        return orjson.Fragment(b"\x01%d\x01" % self._number_of(value, message_json))

    def _tail(self, message: AIMessageChunk, metadata: Mapping[str, Any]) -> int:
        key = (message.id, message.name, id(metadata), repr(message.response_metadata))
        hit = self._tails.get(key)
        if hit is None:
            # `content` is a message's first field, so everything behind it can be kept as one piece.
            rest = {name: value for name, value in message.__dict__.items() if name != "content"}
            tail = b"," + to_json(rest)[1:] + b"," + to_json(metadata) + b"]"
            hit = self._tails[key] = (metadata, self._keep(tail))
        return hit[1]

    def _number_of(self, value: Any, serialise: Any) -> int:
        # Objects keep their identity between steps; holding them keeps their id from being reused.
        hit = self._seen.get(id(value))
        if hit is None:
            hit = self._seen[id(value)] = (value, self._keep(serialise(value)))
        return hit[1]

    def _keep(self, body: bytes) -> int:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self._next
            self._next += 1
            self.fresh.append((number, body))
        self.fragments[number] = body
        return number


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:  # what a tool put into its result may have any `__str__`; an event must go out
        return f"<{type(value).__name__}>"


def _is_only_text(chunk: AIMessageChunk) -> bool:
    return (
        isinstance(chunk.content, str)
        and not chunk.tool_call_chunks
        and not chunk.tool_calls
        and not chunk.invalid_tool_calls
        and chunk.usage_metadata is None
        and not chunk.additional_kwargs
        and chunk.chunk_position is None
    )


def _is_inline_image(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "image_url":
        return False
    image = block.get("image_url")
    url = image.get("url", "") if isinstance(image, dict) else image
    return isinstance(url, str) and url.startswith("data:")


def _merge(neighbours: "re.Match[bytes]") -> bytes:
    return mark([int(number) for number in re.findall(rb"\d+", neighbours.group())])


def _cleaned(value: Any, above: tuple[int, ...]) -> Any:
    """Return a copy that orjson takes: for numbers too big, broken text and endless nesting.

    Args: `above` are the identities of the values that this one is inside of.
    """
    if len(above) > _MOST_DEPTH or id(value) in above:
        return "…"
    inside = (*above, id(value))
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case bool() | None | float():
            return value
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case BaseMessage():
            return _cleaned(visible_fields(value), inside)
        case Mapping():
            return {str(_cleaned(key, inside)): _cleaned(item, inside) for key, item in value.items()}
        case Sequence() | set() | frozenset() if not isinstance(value, bytes | bytearray):
            return [_cleaned(item, inside) for item in value]
        case _:
            return _cleaned(plain(value), inside)
