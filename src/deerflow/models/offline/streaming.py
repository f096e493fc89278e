"""Gives a finished message out piece by piece, as a model that writes would."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

ARGUMENT_CHARS = 160
"""How much of a tool call's arguments goes into one piece."""
BYTES_PER_TOKEN = 4

_PIECE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\s\u3400-\u9fff\uf900-\ufaff]+\s*|\s+")


def pieces_of(message: AIMessage) -> Iterator[ChatGenerationChunk]:
    """Yield a message word by word (Chinese: character by character), then its tool calls, then its usage."""
    for match in _PIECE.finditer(message.text):
        yield ChatGenerationChunk(message=AIMessageChunk(content=match.group()))
    for index, call in enumerate(message.tool_calls):
        yield _call_piece(index, args="", name=call["name"], call_id=call["id"])
        text = json.dumps(call["args"], ensure_ascii=False)
        for at in range(0, len(text), ARGUMENT_CHARS):
            yield _call_piece(index, args=text[at : at + ARGUMENT_CHARS])
    yield ChatGenerationChunk(
        message=AIMessageChunk(
            content="",
            usage_metadata=message.usage_metadata,
            response_metadata=message.response_metadata,
            chunk_position="last",
        )
    )


def usage_of(messages: Sequence[BaseMessage], answer: AIMessage) -> UsageMetadata:
    """Return roughly how many tokens a real model would have read and written."""
    read = sum(_tokens(message) for message in messages)
    written = max(1, _tokens(answer))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _tokens(message: BaseMessage) -> int:
    calls: list[Any] = list(message.tool_calls) if isinstance(message, AIMessage) else []
    size = len(message.text.encode(errors="replace")) + sum(len(json.dumps(call["args"])) for call in calls)
    return -(-size // BYTES_PER_TOKEN)


def _call_piece(
    index: int, *, args: str, name: str | None = None, call_id: str | None = None
) -> ChatGenerationChunk:
    chunk: Any = {"type": "tool_call_chunk", "index": index, "name": name, "args": args, "id": call_id}
    return ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
