"""Calls a model without LangChain's callback and tracing machinery when no callback is registered.

Callbacks, traces and their metadata cost more CPU than a short answer itself. With many concurrent agents
this overhead limits how many agents a core can serve.
"""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig

from deerflow.domain import new_id

Hear = Callable[[str], None]
"""Receives the text of an answer while it streams."""


async def ask_quickly(
    model: Runnable[LanguageModelInput, AIMessage],
    messages: Sequence[BaseMessage],
    *,
    config: RunnableConfig,
    hear: Hear,
) -> BaseMessage:
    """Return the model's answer; `hear` receives its text while it streams.

    Does not use `ainvoke`, which calls the model in a separate task: of many agents that start together,
    none would send its request before the last one was ready.
    """
    bare, settings = _taken_apart(model)
    if bare is None or config.get("callbacks") or _has_listeners(bare):
        pieces = []
        async for piece in model.astream(list(messages), config):
            hear(str(piece.text))
            pieces.append(piece)
        first, *more = pieces
        return message_chunk_to_message(first + more) if isinstance(first, AIMessageChunk) else first
    answer = await _whole(bare, messages, settings, hear)
    answer.message.id = answer.message.id or new_id()
    answer.message.response_metadata = {
        **(answer.generation_info or {}),
        **answer.message.response_metadata,
    }
    return message_chunk_to_message(answer.message)


async def _whole(
    model: BaseChatModel, messages: Sequence[BaseMessage], settings: dict[str, Any], hear: Hear
) -> ChatGenerationChunk:
    pieces = []
    async for piece in model._astream(list(messages), **settings):
        hear(str(piece.message.text))
        pieces.append(piece)
    if not pieces:
        raise ValueError("the model answered with nothing at all")
    return pieces[0] + pieces[1:] if len(pieces) > 1 else pieces[0]


def _taken_apart(
    model: Runnable[LanguageModelInput, AIMessage],
) -> tuple[BaseChatModel | None, dict[str, Any]]:
    """Return the model and its bound arguments; None for the model if another runnable wraps it."""
    if isinstance(model, RunnableBinding) and not model.config and not model.config_factories:
        return (model.bound if isinstance(model.bound, BaseChatModel) else None), dict(model.kwargs)
    return (model, {}) if isinstance(model, BaseChatModel) else (None, {})


def _has_listeners(model: BaseChatModel) -> bool:
    """Return whether a call must go through LangChain: callbacks, a rate limit, or no streaming."""
    return bool(
        model.callbacks
        or model.rate_limiter
        or model.verbose
        or model.output_version == "v1"
        or not model._should_stream(async_api=True, stream=True)
    )
