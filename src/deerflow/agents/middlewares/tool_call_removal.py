"""Removes tool calls from a model response before they run.

`ask_clarification` ends the turn. Other calls of the same response would be based on a guess and would
continue the turn, so they are dropped: the user's answer decides about them. Of the calls that start
sub-agents, those beyond the limit are dropped. Both happen inside the model call, so that the stored response
never has a call that was not run.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Self

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import Settings

logger = logging.getLogger(__name__)

ASK_CLARIFICATION = "ask_clarification"


class ClarificationMiddleware(ChainMiddleware):
    """Drops every other call of a response that calls `ask_clarification`."""

    switch = "clarification"
    applies_to = AgentKind.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        others = calls_besides_question(response)
        if not others:
            return response
        logger.info(
            "run %s: %d calls next to a question dropped",
            request.runtime.context.run_id,
            len(others),
        )
        return without_calls(response, others)


def calls_besides_question(response: ModelResponse[object]) -> set[str | None]:
    """Return the ids of all calls except the first question; empty if there is no question."""
    calls = [
        call for message in response.result if isinstance(message, AIMessage) for call in message.tool_calls
    ]
    question = next((call["id"] for call in calls if call["name"] == ASK_CLARIFICATION), None)
    return set() if question is None else {call["id"] for call in calls if call["id"] != question}


TASK = "task"


class SubagentLimitMiddleware(ChainMiddleware):
    """Drops the `task` calls of one response beyond `limit`; for every agent that may delegate."""

    def __init__(self, *, limit: int) -> None:
        super().__init__()
        self._limit = limit

    @classmethod
    def from_settings(cls, settings: Settings, limit: int) -> Self | None:
        # With `queue`, the executor holds the excess back.
        return cls(limit=limit) if limit and settings.subagents.overflow == "drop" else None

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        excess = excess_tasks(response, self._limit)
        if not excess:
            return response
        logger.warning(
            "run %s: %d task calls dropped, one reply may start %d",
            request.runtime.context.run_id,
            len(excess),
            self._limit,
            extra={"trace_id": request.runtime.context.trace_id},
        )
        return without_calls(response, excess)


def excess_tasks(response: ModelResponse[object], limit: int) -> set[str | None]:
    """Return the ids of the `task` calls beyond the first `limit`."""
    tasks = [
        call["id"]
        for message in response.result
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] == TASK
    ]
    return set(tasks[limit:])


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
