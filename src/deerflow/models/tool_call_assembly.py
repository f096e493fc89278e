"""Assembles streamed tool calls and reports malformed ones, whatever the server sends.

LangChain's adapter joins fragments by their index. Some servers send no index, or the same index for every
call, or no id, or a new id with every fragment, or repeat the tool name in every fragment;
`ToolCallAssembler` assigns their fragments.

LangChain completes truncated JSON, so a truncated file can no longer be distinguished from a complete one.
`reporting_malformed_calls` therefore inspects the fragments of other providers' models while they stream. It
also splits a chunk that has both content and a finish reason, because some clients ignore the content of such
a chunk.
"""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from deerflow.domain import new_id

Json = dict[str, Any]
BROKEN_CALLS = "broken_calls"
"""Key under which a chunk, and then a message, lists the tool calls whose arguments are not valid JSON.

LangChain completes truncated arguments, so a tool would run with a part of its input.
"""
REPAIRABLE_CHARS = 1000
"""Malformed arguments up to this length are left to LangChain, which recovers what it can."""
_WHOLE_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_OPEN_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(\\)?\Z', re.DOTALL)


@dataclass(slots=True)
class _Call:
    """The fragments received so far of one tool call."""

    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are complete, so that the next fragment belongs to another call."""
        last = next((piece.rstrip() for piece in reversed(self.arguments) if piece.strip()), "")
        # Check the last character first: parsing a long call again for every fragment is quadratic.
        return last.endswith("}") and is_json("".join(self.arguments))


class ToolCallAssembler:
    """The tool calls received so far in one answer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._numbers: dict[object, int] = {}
        """Maps the server's index to our index of the latest call with it."""

    def take(self, piece: Json) -> None:
        """Assign a fragment to its call and set the fields that the adapter requires: index, id, function."""
        function = _tidied(piece)
        name = function.get("name") or ""
        number = self._number(piece, function)
        piece["index"] = number
        call = self._calls[number]
        if piece.get("id") or not call.arguments:
            piece["id"] = call.id  # the first id is kept; a missing one is generated for the tool result
        if name and name == call.name:
            del function["name"]
        else:
            call.name += name
        call.arguments.append(function.get("arguments") or "")

    def broken(self) -> list[str]:
        """Return the ids of the calls whose arguments are not valid JSON."""
        return [call.id for call in self._calls if not is_json("".join(call.arguments))]

    def endings(self) -> list[Json]:
        """Return a final fragment for each long malformed call, see `rejecting_suffix`."""
        whole = {number: "".join(call.arguments) for number, call in enumerate(self._calls)}
        return [
            {"index": number, "function": {"arguments": rejecting_suffix(arguments)}}
            for number, arguments in whole.items()
            if len(arguments) > REPAIRABLE_CHARS and not is_json(arguments)
        ]

    def _number(self, piece: Json, function: Json) -> int:
        given, index, name = piece.get("id") or "", piece.get("index"), function.get("name") or ""
        number = self._numbers.get(index)
        if number is None or (given and given != self._calls[number].id):
            number = self._by_id(given, name, index)
        elif not given and self._begins_another(self._calls[number], function, index):
            number = None
        if number is None:
            number = len(self._calls)
            self._calls.append(_Call(given or f"call_{new_id().replace('-', '')}"))
        self._numbers[index] = number
        return number

    def _by_id(self, given: str, name: str, index: object) -> int | None:
        """Return our index of the call to which a fragment with a new id belongs; None for a new call."""
        latest = self._numbers.get(index)
        if given and (index is None or latest is not None):
            known = next((at for at, call in enumerate(self._calls) if call.id == given), None)
            if known is not None:
                return known
        return None if name or index is None else latest

    @staticmethod
    def _begins_another(call: _Call, function: Json, index: object) -> bool:
        """Return whether a fragment without an id starts a new call after `call` of the same index."""
        name = function.get("name")
        if not (name and call.name) or (name == call.name and not function.get("arguments")):
            return False  # servers that repeat the name also send it with an empty last fragment
        return call.is_whole or (index is None and name != call.name)


def is_json(arguments: str) -> bool:
    """Return whether the arguments of a tool call are complete JSON; empty arguments are complete."""
    try:
        json.loads(arguments or "{}", strict=False)  # like LangChain's parser: allows raw line breaks
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        return False
    return True


def rejecting_suffix(arguments: str) -> str:
    """Return a suffix that makes LangChain's partial JSON parser reject malformed arguments at once.

    The parser removes one character after another from the end and parses the rest again, which takes
    minutes for a long text. An unmatched closing bracket stops it.
    """
    open_text = _OPEN_TEXT.search(_WHOLE_TEXT.sub("", arguments))
    quote = "" if open_text is None else '"'
    escaped = "" if open_text is None or open_text[1] is None else "\\"
    return escaped + quote + "]" * (arguments.count("{") + arguments.count("[") + 1)


def _tidied(piece: Json) -> Json:
    """Convert a fragment's fields to the types that the adapter accepts; return its name and arguments."""
    if not isinstance(piece.get("index"), int | str):
        piece["index"] = None
    if piece.get("id") is not None:
        piece["id"] = str(piece["id"])
    function = piece.get("function")
    if not isinstance(function, dict):
        function = piece["function"] = {}
    if isinstance(function.get("arguments"), dict):
        function["arguments"] = _written(function["arguments"])
    for key in ("name", "arguments"):
        if not isinstance(function.get(key), str):
            function.pop(key, None)
    return function


def _written(arguments: Json) -> str:
    """Serialize arguments that came as an object; return invalid JSON if they are nested too deeply."""
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "{"


END_KEYS = frozenset({"finish_reason", "stop_reason", "done_reason"})
"""The providers' keys for the finish reason of an answer."""

Stream = Callable[..., AsyncIterator[ChatGenerationChunk]]


@cache
def reporting_malformed_calls(cls: type[BaseChatModel]) -> type[BaseChatModel]:
    """Return a subclass of a chat model whose streamed answers list their malformed tool calls."""
    if cls._astream is BaseChatModel._astream and cls._stream is BaseChatModel._stream:
        return cls  # no streaming: its calls arrive complete and are parsed strictly
    body = {"_astream": _checked_stream(cls._astream), "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), body)


def _checked_stream(stream: Stream) -> Stream:
    async def _astream(self: BaseChatModel, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        calls = _Calls()
        async with aclosing(stream(self, *args, **kwargs)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                calls.take(chunk.message)
                if _is_end(chunk) and _has_content(chunk.message):
                    yield _content_of(chunk)
                    yield _end_of(chunk)
                else:
                    yield chunk
        if broken := calls.broken():
            noted = AIMessageChunk(content="", additional_kwargs={BROKEN_CALLS: broken})
            noted.tool_call_chunks = calls.endings()
            yield ChatGenerationChunk(message=noted)

    return _astream


def _is_end(chunk: ChatGenerationChunk) -> bool:
    """Return whether a chunk has a finish reason."""
    return any(
        found.get(key)
        for found in (chunk.generation_info or {}, chunk.message.response_metadata)
        for key in found.keys() & END_KEYS
    )


def _has_content(message: BaseMessage) -> bool:
    calls = message.tool_call_chunks if isinstance(message, AIMessageChunk) else ()
    return bool(message.content or calls)


def _content_of(chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """Return the content of a last chunk, without its finish reason and token counts."""
    nothing: dict[str, Any] = {"response_metadata": {}, "usage_metadata": None, "chunk_position": None}
    return ChatGenerationChunk(message=chunk.message.model_copy(update=nothing))


def _end_of(chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """Return the finish reason and token counts of a last chunk, without its content."""
    message = chunk.message
    end = AIMessageChunk(
        content="",
        id=message.id,
        response_metadata=message.response_metadata,
        usage_metadata=getattr(message, "usage_metadata", None),
        chunk_position=getattr(message, "chunk_position", None),
    )
    return ChatGenerationChunk(message=end, generation_info=chunk.generation_info)


class _Calls:
    """The argument fragments received so far, per tool call."""

    def __init__(self) -> None:
        self._pieces: dict[object, list[str]] = {}
        self._ids: dict[object, str] = {}

    def take(self, message: BaseMessage) -> None:
        """Add the tool call fragments of one chunk."""
        for piece in message.tool_call_chunks if isinstance(message, AIMessageChunk) else ():
            key = piece["id"] if piece["index"] is None else piece["index"]
            if piece["id"]:
                self._ids[key] = piece["id"]
            self._pieces.setdefault(key, []).append(piece["args"] or "")

    def broken(self) -> list[str]:
        """Return the ids of the calls whose arguments are not valid JSON."""
        return [
            self._ids.get(key, "") for key, pieces in self._pieces.items() if not is_json("".join(pieces))
        ]

    def endings(self) -> list[ToolCallChunk]:
        """Return a final fragment for each long malformed call, see `rejecting_suffix`."""
        whole = {key: "".join(pieces) for key, pieces in self._pieces.items() if isinstance(key, int)}
        return [
            tool_call_chunk(index=key, args=rejecting_suffix(arguments))
            for key, arguments in whole.items()
            if len(arguments) > REPAIRABLE_CHARS and not is_json(arguments)
        ]
