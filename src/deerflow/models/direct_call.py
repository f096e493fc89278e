"""Asks a model without what LangChain does around a call for those who listen, when nobody does.

Callbacks, traces and their metadata cost more CPU than a short answer itself. Where many agents ask at once
that decides how many of them a core can serve.
"""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig

from deerflow.domain import new_id

Hear = Callable[[str], None]
"""Takes the words of an answer while it is given."""


async def ask_quickly(
    model: Runnable[LanguageModelInput, AIMessage],
    messages: Sequence[BaseMessage],
    *,
    config: RunnableConfig,
    hear: Hear,
) -> BaseMessage:
    """Return the model's answer; its words are heard as they come.

    Never by `ainvoke`, which asks in a task of its own: of many agents that start together, none would have
    put its question before the last one was ready to.
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
    """Return the model itself and what was bound to it; None where something else is around it."""
    if isinstance(model, RunnableBinding) and not model.config and not model.config_factories:
        return (model.bound if isinstance(model.bound, BaseChatModel) else None), dict(model.kwargs)
    return (model, {}) if isinstance(model, BaseChatModel) else (None, {})


def _has_listeners(model: BaseChatModel) -> bool:
    """Tell whether a call needs LangChain's way: somebody listens, or the model does not stream."""
    return bool(
        model.callbacks
        or model.rate_limiter
        or model.verbose
        or model.output_version == "v1"
        or not model._should_stream(async_api=True, stream=True)
    )
