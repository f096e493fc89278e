"""Records count, duration and outcome of each model call and tool call in metrics and spans.

Message contents are left out, unless the settings include them in spans (`telemetry.capture_content`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.errors import GraphBubbleUp
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolRequest, ToolResult
from deerflow.context import RunContext
from deerflow.models import reason_of
from deerflow.observability.meters import OTHER
from deerflow.observability.watch import Attributes


class ModelTelemetryMiddleware(ChainMiddleware):
    """Records each model call."""

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        context = request.runtime.context
        with context.watch.model_call(model_id(request.model), task_id=context.task_id) as seen:
            try:
                response = await handler(request)
            except Exception as error:
                seen.reason = reason_of(error)
                raise
            answer = next((each for each in response.result if isinstance(each, AIMessage)), None)
            seen.tokens = tokens_of(answer.usage_metadata if answer else None)
            if context.watch.captures_content:
                seen.content = said(request.messages, response.result)
            return response


class ToolTelemetryMiddleware(ChainMiddleware):
    """Records each tool call, including denied calls and approval requests."""

    before = ("ToolErrorMiddleware", "GuardrailMiddleware")

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        context = cast("RunContext", request.runtime.context)
        call = request.tool_call
        name = call["name"] if request.tool is not None else OTHER  # a model may invent names
        with context.watch.tool_call(name, call_id=call["id"] or "", task_id=context.task_id) as seen:
            try:
                result = await handler(request)
            except GraphBubbleUp:  # interrupted for a person's answer; the call is made again with it
                seen.outcome = "asked"
                raise
            if isinstance(result, ToolMessage) and result.status == "error":
                seen.outcome = "error"
            if context.watch.captures_content:
                seen.content = done(call["args"], result)
            return result


def model_id(model: BaseChatModel) -> str:
    """Return the provider's name for the model; for one with fallbacks, the name of the first."""
    first = next(iter(getattr(model, "members", ())), model)
    named = getattr(first, "model_name", None) or getattr(first, "model", None)
    return named if isinstance(named, str) and named else first._llm_type


def tokens_of(usage: UsageMetadata | None) -> Mapping[str, int]:
    """Return the tokens of one call by kind."""
    if not usage:
        return {}
    cached = (usage.get("input_token_details") or {}).get("cache_read") or 0
    kinds = {"input": usage["input_tokens"], "output": usage["output_tokens"], "cached": cached}
    return {kind: count for kind, count in kinds.items() if count}


def said(asked: Iterable[BaseMessage], answered: Iterable[BaseMessage]) -> Attributes:
    """Return a model's input and output messages as span attributes."""
    return {"gen_ai.input.messages": _as_json(asked), "gen_ai.output.messages": _as_json(answered)}


def done(arguments: Any, result: ToolResult) -> Attributes:
    """Return a tool's arguments and result as span attributes."""
    answer = result.text if isinstance(result, ToolMessage) else ""
    return {
        "gen_ai.tool.call.arguments": json.dumps(arguments, default=repr),
        "gen_ai.tool.call.result": answer,
    }


def _as_json(messages: Iterable[BaseMessage]) -> str:
    parts = [
        {
            "role": message.type,
            "content": message.text,
            "tool_calls": message.tool_calls if isinstance(message, AIMessage) else [],
        }
        for message in messages
    ]
    return json.dumps(parts, default=repr)
