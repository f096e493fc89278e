"""Encodes the events of a run: each message of its thread is serialised once and then referenced.

A thread's messages recur (each `values` event holds them all), so a message is stored as a numbered
*fragment*, and events only hold its number (see `storage.events`).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

from deerflow.runtime.serialization import OPTIONS, message_json, plain, to_json
from deerflow.storage.fragments import references_to, render

_NEIGHBOURS = re.compile(rb"\x01\d+\x01(?:,\x01\d+\x01)+")
_WHOLE = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
_ENTRY_BYTES = 128
_MESSAGE_BYTES = 2048
"""The approximate memory of a message, with its entry."""
MAX_RENDERED_BYTES = 256 * 1024
"""The size in bytes of the longest conversation whose rendered state a run keeps."""


@dataclass(frozen=True, slots=True)
class Known:
    """The fragments of a thread that are already stored."""

    digests: Mapping[bytes, int]
    """All fragment numbers, by the digest of their content."""
    messages: Sequence[BaseMessage] = ()
    """The messages of the last state: the same object is unchanged, so it need not be serialised again."""
    numbers: Sequence[int] = ()
    """Their fragment numbers, in the same order."""
    bodies: Mapping[int, bytes] = field(default_factory=dict)
    """The content of these fragments."""

    @property
    def size(self) -> int:
        """The approximate memory use in bytes."""
        body_bytes = sum(map(len, self.bodies.values()))
        return _ENTRY_BYTES * len(self.digests) + _MESSAGE_BYTES * len(self.messages) + 2 * body_bytes


class Encoder:
    """Encodes the events of one run, with each message of its thread as one fragment."""

    def __init__(self, known: Known) -> None:
        self._numbers = dict(known.digests)
        self._next = max(self._numbers.values(), default=0) + 1
        self._known = known
        self._objects = dict(zip(map(id, known.messages), known.numbers, strict=True))
        self._seen: dict[int, tuple[object, int]] = {}
        self._state = _State()
        self._state_before = _State()
        self._has_referred = False
        self._tails: dict[tuple[str | None, str | None, int, str], tuple[object, int]] = {}
        self.fragments: dict[int, bytes] = dict(known.bodies)
        """Every fragment that this run has used so far, and those of the state before it."""
        self.fresh: list[tuple[int, bytes]] = []
        """Fragments that are not stored yet; the code that stores them clears the list."""

    @property
    def known(self) -> Known:
        """The fragments with which the thread's next run may begin."""
        bodies = {number: self.fragments[number] for number in self._state.numbers}
        return Known(self._numbers, self._state.messages, self._state.numbers, bodies)

    def encode(self, payload: Any) -> bytes:
        """Return `payload` as JSON with references in place of whole messages."""
        self._has_referred = False
        try:
            body = orjson.dumps(self._with_references(payload), default=self._refer, option=OPTIONS)
        except (TypeError, ValueError, RecursionError):
            return to_json(payload)
        return _NEIGHBOURS.sub(_merge, body) if self._has_referred else body

    def encode_chunk(self, message: BaseMessage, metadata: Mapping[str, Any]) -> bytes:
        """Return a `messages` event: a text chunk takes little more than the text itself."""
        if isinstance(message, AIMessageChunk) and _is_only_text(message):
            return b'[{"content":%b%b' % (
                to_json(message.content),
                references_to([self._tail(message, metadata)]),
            )
        return b"[%b,%b]" % (self.encode(message), references_to([self._number_of_metadata(metadata)]))

    def render(self, body: bytes) -> bytes:
        """Return an encoded event with its references resolved."""
        for state in (self._state, self._state_before):
            if state.rendered and state.references in body:
                body = body.replace(state.references, state.rendered, 1)
                break
        return render(body, self.fragments)

    def _with_references(self, payload: Any) -> Any:
        """Return a state with pre-encoded messages: in a long thread they are nearly all of it."""
        messages = payload.get("messages") if type(payload) is dict else None
        if not isinstance(messages, list) or not _WHOLE.issuperset(map(type, messages)):
            return payload
        # A state begins with the messages of the one before; comparing identical objects is cheap.
        if messages[: len(self._state.messages)] != self._state.messages:
            self._state = _State()
        known = len(self._state.messages)
        if len(messages) > known:
            added = self._numbers_of(messages[known:])
            self._state_before = self._state
            self._state = self._state.extended(messages, added, self.fragments)
        return {**payload, "messages": orjson.Fragment(b"[%b]" % self._state.references)}

    def _refer(self, value: Any) -> Any:
        if isinstance(value, BaseMessageChunk) or not isinstance(value, BaseMessage):
            return plain(value)
        self._has_referred = True
        return orjson.Fragment(b"\x01%d\x01" % self._number_of(value))

    def _numbers_of(self, messages: Sequence[BaseMessage]) -> list[int]:
        seen = map(self._objects.get, map(id, messages))
        numbers = [number or self._number_of(message) for number, message in zip(seen, messages, strict=True)]
        # Only the first state of a run equals the last stored one: from here on, messages may change.
        self._objects = {}
        self._known = Known({})
        return numbers

    def _number_of(self, message: BaseMessage) -> int:
        return self._keep(message_json(message))

    def _tail(self, message: AIMessageChunk, metadata: Mapping[str, Any]) -> int:
        key = (message.id, message.name, id(metadata), repr(message.response_metadata))
        hit = self._tails.get(key)
        if hit is None:
            # `content` is a message's first field, so all fields after it can be stored as one fragment.
            rest = {name: value for name, value in message.__dict__.items() if name != "content"}
            tail = b"," + to_json(rest)[1:] + b"," + to_json(metadata) + b"]"
            hit = self._tails[key] = (metadata, self._keep(tail))
        return hit[1]

    def _number_of_metadata(self, metadata: Mapping[str, Any]) -> int:
        # Objects keep their identity between steps; holding them prevents reuse of their id.
        hit = self._seen.get(id(metadata))
        if hit is None:
            hit = self._seen[id(metadata)] = (metadata, self._keep(to_json(metadata)))
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


@dataclass(frozen=True, slots=True)
class _State:
    """The messages of one state, as references and as readers see them."""

    messages: Sequence[BaseMessage] = ()
    numbers: Sequence[int] = ()
    references: bytes = b""
    rendered: bytes = b""
    """The rendered form of the references; empty when the conversation is too long to be kept twice."""

    def extended(
        self, messages: list[BaseMessage], added: Sequence[int], fragments: Mapping[int, bytes]
    ) -> "_State":
        """Return the state with these messages, of which the last ones are new."""
        references, rendered = references_to(added), b",".join([fragments[number] for number in added])
        if self.numbers:
            is_known = bool(self.rendered)
            references = b"%b,%b" % (self.references, references)
            rendered = b"%b,%b" % (self.rendered, rendered) if is_known else b""
        if len(rendered) > MAX_RENDERED_BYTES:
            rendered = b""
        return _State(messages.copy(), [*self.numbers, *added], references, rendered)


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


def _merge(neighbours: "re.Match[bytes]") -> bytes:
    return references_to([int(number) for number in re.findall(rb"\d+", neighbours.group())])
