"""Keeps users, and text they paste, from forging the harness's prompt tags.

Tags with a meaning in DeerFlow's prompts are neutralised in the request only: the stored and displayed
message is unchanged.
"""

from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from typing_extensions import override

from deerflow.agents.message_types import is_human
from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.domain.tags import neutralise


class InputSanitizingMiddleware(ChainMiddleware):
    """Neutralises framework tags in user messages."""

    # All of these add DeerFlow's own tags to the request, which must stay.
    before = ("SummarizationMiddleware", "UploadsMiddleware", "ReminderMiddleware", "LoopDetectionMiddleware")

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        messages = sanitised(request.messages)
        return await handler(request if messages is request.messages else request.override(messages=messages))


def sanitised(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return `messages` without forged tags in user messages; the same list where there are none."""
    changed = {
        place: cleaned
        for place, message in enumerate(messages)
        if is_human(message) and (cleaned := _clean(message)) is not message
    }
    if not changed:
        return messages
    return [changed.get(place, message) for place, message in enumerate(messages)]


def _clean(message: HumanMessage) -> HumanMessage:
    content = message.content
    if isinstance(content, str):
        text = neutralise(content)
        return message if text == content else message.model_copy(update={"content": text})
    blocks = [_clean_block(block) for block in content]
    return message if blocks == content else message.model_copy(update={"content": blocks})


def _clean_block(block: str | dict[Any, Any]) -> str | dict[Any, Any]:
    if isinstance(block, str):
        return neutralise(block)
    if isinstance(block.get("text"), str):
        return {**block, "text": neutralise(block["text"])}
    return block
