"""Converts tool calls that a small model writes as JSON into its text to real tool calls.

It subclasses the model's class, so that a possible call is buffered before any reader receives it. The
original text is kept in the message, under `REPAIRED`, and so in the event log.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from deerflow.domain import new_id
from deerflow.models.text_calls import CallFinder, FoundCalls, OfferedTools, TextCall

Mode = Literal["auto", "always"]
Stream = Callable[..., AsyncIterator[ChatGenerationChunk]]
Generate = Callable[..., Any]

REPAIRED = "repaired_tool_calls"
"""Key under which a message keeps the original text of its calls."""
ASKS_FOR_JSON = re.compile(
    r"(?<![.\w/])(?:json|example|sample|snippet|tool[ _-]?calls?|function[ _-]?calls?)(?![.\w/])"
    r"|示例|例子|样例|举例|范例|工具调用|函数调用",
    re.IGNORECASE,
)
"""Words of a user who asks for such JSON; file names, with a dot before or after the word, do not match."""
ADDED = re.compile(r"<(uploaded_files|current_uploads|system-reminder)>.*?</\1>", re.DOTALL)
"""What DeerFlow adds to a user's message before the model receives it."""
CUT_REASONS = frozenset({"length", "max_tokens"})


@cache
def repairing(cls: type[BaseChatModel], mode: Mode) -> type[BaseChatModel]:
    """Return a subclass of a chat model whose answers have real tool calls instead of JSON text."""
    body: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    if cls._astream is not BaseChatModel._astream:
        body["_astream"] = _repairing_stream(cls._astream, mode)
    body["_agenerate"] = _repairing_whole(cls._agenerate, mode)
    return type(cls.__name__, (cls,), body)


def _repairing_stream(stream: Stream, mode: Mode) -> Stream:
    async def _astream(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        finder = _finder(messages, kwargs, mode)
        answer = stream(self, messages, *args, **kwargs)
        async with aclosing(answer) as chunks:  # type: ignore[type-var]
            if finder is None:
                async for chunk in chunks:
                    yield chunk
                return
            reader = _StreamReader(finder)
            async for chunk in chunks:
                for shown in reader.take(chunk):
                    yield shown
            for shown in reader.finish():
                yield shown

    return _astream


def _repairing_whole(generate: Generate, mode: Mode) -> Generate:
    async def _agenerate(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        result: ChatResult = await generate(self, messages, *args, **kwargs)
        finder = _finder(messages, kwargs, mode)
        if finder is not None and len(result.generations) == 1:
            _repair_whole(result.generations[0], finder)
        return result

    return _agenerate


def _finder(messages: Sequence[BaseMessage], kwargs: dict[str, Any], mode: Mode) -> CallFinder | None:
    """Return the parser for calls in one answer; None if no tools are offered."""
    tools = OfferedTools(kwargs.get("tools") or ())
    if not tools or kwargs.get("response_format"):
        return None
    return CallFinder(tools, finds_untagged=mode == "always" or not _shows_on_purpose(messages))


def _shows_on_purpose(messages: Sequence[BaseMessage]) -> bool:
    """Return whether JSON in the answer is probably intended for the user.

    That is so if the model has already made a real tool call, or if the user asks for JSON.
    """
    calling = (each for each in messages if isinstance(each, AIMessage) and each.tool_calls)
    if any(REPAIRED not in message.additional_kwargs for message in calling):
        return True
    questions = (each for each in reversed(messages) if isinstance(each, HumanMessage))
    question = next((each for each in questions if not each.additional_kwargs.get("hide_from_ui")), None)
    return question is not None and bool(ASKS_FOR_JSON.search(ADDED.sub("", question.text)))


class _StreamReader:
    """Forwards the chunks of one answer, without text that may be a call."""

    def __init__(self, finder: CallFinder) -> None:
        self._finder: CallFinder | None = finder
        self._is_cut = False

    def take(self, chunk: ChatGenerationChunk) -> list[ChatGenerationChunk]:
        """Return the part of a chunk to emit, preceded by buffered text if it is released."""
        message = chunk.message
        if self._finder is None or not isinstance(message, AIMessageChunk):
            return [chunk]
        if message.tool_call_chunks or not isinstance(message.content, str):
            return [*self._given_up(), chunk]
        info = {**(chunk.generation_info or {}), **message.response_metadata}
        self._is_cut = self._is_cut or info.get("finish_reason") in CUT_REASONS
        if message.content:
            shown = self._finder.feed(message.content)
            if shown != message.content:
                chunk = _with_text(chunk, shown)
        if message.chunk_position != "last":
            return [chunk]
        return [*self.finish(), chunk]

    def finish(self) -> list[ChatGenerationChunk]:
        """Return the chunks at the end of the answer: buffered text, and the calls."""
        if self._finder is None:
            return []
        found, self._finder = self._finder.finish(is_cut=self._is_cut), None
        chunks = [_text_chunk(found.text)] if found.text else []
        return [*chunks, _call_chunk(found)] if found.calls else chunks

    def _given_up(self) -> list[ChatGenerationChunk]:
        """Return the buffered text unchanged, for an answer with real calls or non-text content."""
        if self._finder is None:
            return []
        found, self._finder = self._finder.finish(), None
        text = found.text + found.raw
        return [_text_chunk(text)] if text else []


def _with_text(chunk: ChatGenerationChunk, text: str) -> ChatGenerationChunk:
    message = chunk.message.model_copy(update={"content": text})
    return ChatGenerationChunk(message=message, generation_info=chunk.generation_info)


def _text_chunk(text: str) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=text))


def _call_chunk(found: FoundCalls) -> ChatGenerationChunk:
    message = AIMessageChunk(
        content="",
        tool_call_chunks=[
            {**_named(call), "args": json.dumps(call.arguments), "index": index, "type": "tool_call_chunk"}
            for index, call in enumerate(found.calls)
        ],
        additional_kwargs={REPAIRED: found.raw},
    )
    return ChatGenerationChunk(message=message)


def _repair_whole(generation: ChatGeneration, finder: CallFinder) -> None:
    message = generation.message
    if not isinstance(message, AIMessage) or message.tool_calls or not isinstance(message.content, str):
        return
    shown = finder.feed(message.content)
    reason = (generation.generation_info or {}).get("finish_reason")
    found = finder.finish(is_cut=reason in CUT_REASONS)
    if not found.calls:
        return
    calls = [{**_named(call), "args": dict(call.arguments), "type": "tool_call"} for call in found.calls]
    update = {"content": shown + found.text, "tool_calls": calls}
    kept = {**message.additional_kwargs, REPAIRED: found.raw}
    generation.message = message.model_copy(update={**update, "additional_kwargs": kept})


def _named(call: TextCall) -> dict[str, Any]:
    return {"name": call.name, "id": f"call_{new_id().replace('-', '')[:24]}"}
