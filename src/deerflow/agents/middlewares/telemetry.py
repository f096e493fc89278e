"""Shows operators each call of a model and of a tool: how often, how long, how it ended.

Nothing that was said leaves through here, unless the settings want it in spans (`telemetry.capture_content`).
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
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolCall, ToolHandler, ToolResult
from deerflow.context import RunContext
from deerflow.models import reason_of
from deerflow.observability.meters import OTHER
from deerflow.observability.watch import Attributes


class ModelWatchMiddleware(ChainMiddleware):
    """Watches each call of the model."""

    after = ("ModelErrorMiddleware",)

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


class ToolWatchMiddleware(ChainMiddleware):
    """Watches each call of a tool, refusals and questions included."""

    before = ("ToolErrorMiddleware", "GuardrailMiddleware")

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        context = cast("RunContext", request.runtime.context)
        call = request.tool_call
        name = call["name"] if request.tool is not None else OTHER  # a model may make names up
        with context.watch.tool_call(name, call_id=call["id"] or "", task_id=context.task_id) as seen:
            try:
                result = await handler(request)
            except GraphBubbleUp:  # a person is asked; the call is made again with the answer
                seen.outcome = "asked"
                raise
            if isinstance(result, ToolMessage) and result.status == "error":
                seen.outcome = "error"
            if context.watch.captures_content:
                seen.content = done(call["args"], result)
            return result


def model_id(model: BaseChatModel) -> str:
    """Return what the provider calls the model; of one with stand-ins, what the first is called."""
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
    """Return what went to a model and what came back, for spans."""
    return {"gen_ai.input.messages": _as_json(asked), "gen_ai.output.messages": _as_json(answered)}


def done(arguments: Any, result: ToolResult) -> Attributes:
    """Return what a tool was given and what it answered, for spans."""
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
