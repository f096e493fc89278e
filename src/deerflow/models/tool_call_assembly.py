"""Normalizes other providers' streams: reports malformed tool calls, splits finish reason and content.

LangChain joins the fragments of a call and completes truncated JSON, so a truncated file can no longer be
distinguished from a complete one. The fragments are therefore inspected while they stream. A chunk that has
both content and a finish reason is split, because some clients ignore the content of such a chunk.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from deerflow.models.call_pieces import MENDED_CHARS, hopeless_ending, is_json
from deerflow.models.wire import BROKEN_CALLS

END_KEYS = frozenset({"finish_reason", "stop_reason", "done_reason"})
"""The providers' keys for the finish reason of an answer."""

Stream = Callable[..., AsyncIterator[ChatGenerationChunk]]


@cache
def watched(cls: type[BaseChatModel]) -> type[BaseChatModel]:
    """Return a subclass of a chat model whose streamed answers list their malformed tool calls."""
    if cls._astream is BaseChatModel._astream and cls._stream is BaseChatModel._stream:
        return cls  # no streaming: its calls arrive complete and are parsed strictly
    body = {"_astream": _watching(cls._astream), "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), body)


def _watching(stream: Stream) -> Stream:
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
        """Return a final fragment for each long malformed call, see `hopeless_ending`."""
        whole = {key: "".join(pieces) for key, pieces in self._pieces.items() if isinstance(key, int)}
        return [
            tool_call_chunk(index=key, args=hopeless_ending(arguments))
            for key, arguments in whole.items()
            if len(arguments) > MENDED_CHARS and not is_json(arguments)
        ]
