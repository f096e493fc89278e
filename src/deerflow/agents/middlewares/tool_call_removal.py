"""Removes tool calls from a model response before they run."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage

CALL_BLOCKS = ("tool_use", "tool_call", "function_call")


def without_calls(response: ModelResponse[Any], dropped: Collection[str | None]) -> ModelResponse[Any]:
    """Return the response without the calls that have these ids."""
    result = [
        _trim(message, dropped) if isinstance(message, AIMessage) else message for message in response.result
    ]
    return replace(response, result=result)


def _trim(message: AIMessage, dropped: Collection[str | None]) -> AIMessage:
    """Remove the calls from every field that providers read: they later reject a call without a result."""
    changes: dict[str, Any] = {
        "tool_calls": [call for call in message.tool_calls if call["id"] not in dropped]
    }
    raw = message.additional_kwargs.get("tool_calls")
    if isinstance(raw, list):
        kept = [call for call in raw if call.get("id") not in dropped]
        changes["additional_kwargs"] = {**message.additional_kwargs, "tool_calls": kept}
    if isinstance(message.content, list):
        changes["content"] = [block for block in message.content if not _is_call(block, dropped)]
    return message.model_copy(update=changes)


def _is_call(block: str | dict[Any, Any], dropped: Collection[str | None]) -> bool:
    if isinstance(block, str) or block.get("type") not in CALL_BLOCKS:
        return False
    return block.get("id") in dropped or block.get("call_id") in dropped
