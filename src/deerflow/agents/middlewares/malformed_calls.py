"""Answers tool calls whose arguments are not valid JSON, so that the model corrects them in the same turn.

LangChain moves such calls to `invalid_tool_calls`; a turn with no other calls would end there without an
answer. They are not repaired: truncated arguments must not run as if they were complete.
"""

from dataclasses import replace
from functools import reduce
from typing import Any

import orjson
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolCall, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolResult
from deerflow.agents.types import ToolCall as ToolRequest
from deerflow.domain import new_id
from deerflow.models.wire import BROKEN_CALLS

MALFORMED = "malformed_arguments"
MAX_SHOWN_CHARS = 300
_LEVELS_AROUND = 20
"""An upper bound for the levels around the arguments, which count against orjson's limit of 254."""
WHAT_TO_DO = (
    "Error: the arguments were not valid JSON, or broke off; nothing was done. Send the call again with "
    "complete JSON. If the content is long, write it in several smaller calls."
)


class MalformedCallMiddleware(ChainMiddleware):
    """Restores malformed calls and answers them with an error result."""

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        return with_malformed_calls(response) if any(map(has_malformed_calls, response.result)) else response

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        call = request.tool_call
        if set(call["args"]) != {MALFORMED}:
            return await handler(request)
        return ToolMessage(WHAT_TO_DO, tool_call_id=call["id"] or "", name=call["name"], status="error")


def has_malformed_calls(message: BaseMessage) -> bool:
    """Return whether a message has calls whose arguments are not valid JSON."""
    return isinstance(message, AIMessage) and bool(
        message.invalid_tool_calls
        or BROKEN_CALLS in message.additional_kwargs
        or not all(_can_be_stored(call["args"]) for call in message.tool_calls)
    )


def _can_be_stored(args: object) -> bool:
    """Return whether the arguments can be stored: no number beyond 64 bits, no excessive nesting."""
    try:
        orjson.dumps(reduce(lambda inner, _: [inner], range(_LEVELS_AROUND), args))
    except TypeError:
        return False
    return True


def with_malformed_calls(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Return the response with its malformed calls among the others, marked by their only argument."""
    return replace(response, result=[_taken_up(message) for message in response.result])


def _taken_up(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage) or not has_malformed_calls(message):
        return message
    kept = dict(message.additional_kwargs)
    broken = kept.pop(BROKEN_CALLS, ())
    calls = [
        _marked(call) if call["id"] in broken or not _can_be_stored(call["args"]) else call
        for call in message.tool_calls
    ]
    calls += map(_marked, message.invalid_tool_calls)
    return message.model_copy(
        update={"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": kept}
    )


def _marked(call: ToolCall | InvalidToolCall) -> ToolCall:
    raw = _shown(call["args"])
    return ToolCall(
        name=call["name"] or "unknown", args={MALFORMED: raw}, id=call["id"] or new_id(), type="tool_call"
    )


def _shown(args: object) -> str:
    try:
        raw = str(args or "")
    except (ValueError, RecursionError):  # more digits or levels than Python can format
        raw = ""
    return raw[:MAX_SHOWN_CHARS].encode(errors="replace").decode()
