"""The chat model behind DeerFlow when no other is configured: it needs no network and no key."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field
from typing_extensions import override

from deerflow.models.offline.conversation import OfflineCall, read_conversation
from deerflow.models.offline.lead import decide

Messages = list[BaseMessage]
Stop = list[str] | None
AsyncManager = AsyncCallbackManagerForLLMRun | None
SyncManager = CallbackManagerForLLMRun | None


class OfflineChatModel(BaseChatModel):
    """Plans, delegates, searches, reads and reports by fixed rules.

    The same messages always bring the same answer. Nothing is kept between calls, so one instance serves
    any number of runs at once.
    """

    model_config = ConfigDict(populate_by_name=True)
    can_reason: ClassVar[bool] = False

    model_name: str = Field("offline", alias="model")
    """The name it answers to in traces and usage."""
    unusable_keys: tuple[tuple[str, str, str], ...] = ()
    """Keys that are set but cannot be used: variable, provider, and the command that installs the package."""

    @property
    @override
    def _llm_type(self) -> str:
        return "deerflow-offline"

    @property
    @override
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model_name}

    @override
    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = "deerflow"
        params["ls_model_name"] = str(kwargs.get("model") or self.model_name)
        return params

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs
        )

    @override
    def _generate(
        self, messages: Messages, stop: Stop = None, run_manager: SyncManager = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, stop, kwargs))])

    @override
    async def _astream(
        self, messages: Messages, stop: Stop = None, run_manager: AsyncManager = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        # Ranking megabytes takes a while; other runs share this loop.
        for piece in pieces_of(await asyncio.to_thread(self._answer, messages, stop, kwargs)):
            yield piece

    def _answer(
        self, messages: list[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> AIMessage:
        read = read_conversation(messages, tools=_tool_names(options.get("tools")))
        reply = decide(replace(read, unusable_keys=self.unusable_keys))
        calls = [
            _tool_call(call, position=(len(messages), number)) for number, call in enumerate(reply.calls)
        ]
        answer = AIMessage(
            content=_until_stop(reply.text, stop),
            tool_calls=calls,
            response_metadata={
                "model_name": self.model_name,
                "model_provider": "deerflow",
                "finish_reason": "tool_calls" if calls else "stop",
            },
        )
        answer.usage_metadata = usage_of(messages, answer)
        return answer


def _tool_names(tools: Any) -> list[str]:
    return [tool["function"]["name"] for tool in tools or [] if isinstance(tool, dict) and "function" in tool]


def _tool_call(call: OfflineCall, *, position: tuple[int, int]) -> ToolCall:
    """Return the call with an id that is the same whenever the same point is reached."""
    known = json.dumps([position, call.name, call.args], sort_keys=True)
    return ToolCall(
        name=call.name, args=call.args, id=f"call_{hashlib.sha256(known.encode()).hexdigest()[:20]}"
    )


def _until_stop(text: str, stop: list[str] | None) -> str:
    ends = [text.find(word) for word in stop or [] if word and word in text]
    return text[: min(ends)] if ends else text


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
