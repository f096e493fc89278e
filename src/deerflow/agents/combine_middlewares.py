"""Combines adjacent middlewares into one, so that LangChain's overhead per hook is paid once.

The classes and their order stay the same; LangChain sees one middleware instead of many, with the tools of
all. Middlewares that have a graph node are not combined.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Self

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from langsmith.utils import tracing_is_enabled
from typing_extensions import override

from deerflow.agents.types import (
    Middleware,
    ModelAnswer,
    ModelCall,
    ModelHandler,
    ToolHandler,
    ToolRequest,
    ToolResult,
)
from deerflow.context import RunContext

NODE_HOOKS = ("before_agent", "before_model", "after_model", "after_agent")
SYNC_HOOKS = ("wrap_model_call", "wrap_tool_call")


def combine(middlewares: Sequence[Middleware]) -> list[Middleware]:
    """Return a shorter, equivalent chain; while tracing is on, each middleware keeps its own span."""
    if tracing_is_enabled():
        return list(middlewares)
    return list(_groups(middlewares))


def combine_model_calls(middlewares: Sequence[Middleware]) -> Middleware | None:
    """Combine all model call wrappers into one; return None if a middleware does more than wrap calls."""
    if tracing_is_enabled() or not all(_only_wraps(each) and not _tools_of(each) for each in middlewares):
        return None
    models = [each for each in middlewares if _overrides(each, "awrap_model_call")]
    return _CombinedModelCalls(models=models, tools=(), number=0)


def _groups(middlewares: Sequence[Middleware]) -> Iterator[Middleware]:
    for number, (can_combine, neighbours) in enumerate(groupby(middlewares, key=_only_wraps)):
        group = list(neighbours)
        if can_combine and len(group) > 1:
            yield _combined(group, number)
        else:
            yield from group


def _combined(group: Sequence[Middleware], number: int) -> "CombinedMiddleware":
    """Return the group as one middleware with only the hooks in use: LangChain detects hooks by class."""
    models = [each for each in group if _overrides(each, "awrap_model_call")]
    tools = [each for each in group if _overrides(each, "awrap_tool_call")]
    bases = [_CombinedModelCalls] * bool(models) + [_CombinedToolCalls] * bool(tools)
    kind = type("CombinedMiddleware", (*bases, CombinedMiddleware), {})
    combined: CombinedMiddleware = kind(models=models, tools=tools, number=number)
    combined.tools = [tool for each in group for tool in _tools_of(each)]
    return combined


class CombinedMiddleware(AgentMiddleware[Any, Any, Any]):
    """Several middlewares combined into one; the first is the outermost."""

    def __init__(self, *, models: Sequence[Middleware], tools: Sequence[Middleware], number: int) -> None:
        super().__init__()
        self._models = tuple(reversed(models))
        self._tools = tuple(reversed(tools))
        self._number = number

    @property
    @override
    def name(self) -> str:
        return f"Combined{self._number}"


class _CombinedModelCalls(CombinedMiddleware):
    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        updates: dict[int, dict[str, Any]] = {}
        for level, middleware in enumerate(self._models):
            handler = partial(_ask, middleware, level, handler, updates)
        response = await handler(QuickRequest.of(request))
        if not updates:
            return response
        # Inner updates first: the order in which LangChain applies them.
        merged = _merged(updates[level] for level in sorted(updates))
        return ExtendedModelResponse(model_response=response, command=Command(update=merged))


class _CombinedToolCalls(CombinedMiddleware):
    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        for middleware in self._tools:
            handler = partial(_call, middleware, handler)
        return await handler(request)


async def _ask(
    middleware: Middleware,
    level: int,
    handler: ModelHandler,
    updates: dict[int, dict[str, Any]],
    request: ModelCall,
) -> ModelResponse[Any]:
    """Run one middleware; its state update is collected in `updates` under its level."""
    if updates:  # a retry: drop the state updates of the discarded response
        for inner in [known for known in updates if known <= level]:
            del updates[inner]
    answer = await middleware.awrap_model_call(request, handler)
    if isinstance(answer, ExtendedModelResponse):
        if answer.command is not None:
            updates[level] = _update_of(answer.command)
        return answer.model_response
    return ModelResponse(result=[answer]) if isinstance(answer, AIMessage) else answer


async def _call(middleware: Middleware, handler: ToolHandler, request: ToolRequest) -> ToolResult:
    return await middleware.awrap_tool_call(request, handler)


def _update_of(command: Command[Any]) -> dict[str, Any]:
    if command.goto or command.resume is not None or not isinstance(command.update, dict):
        raise ValueError("a middleware around a model call may only update the state")
    return command.update


def _merged(updates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for update in updates:
        for key, value in update.items():
            is_list = isinstance(value, list) and isinstance(merged.get(key), list)
            merged[key] = [*merged[key], *value] if is_list else value
    return merged


def _only_wraps(middleware: Middleware) -> bool:
    hooks = [name for hook in NODE_HOOKS for name in (hook, f"a{hook}")]
    wraps = _overrides(middleware, "awrap_model_call") or _overrides(middleware, "awrap_tool_call")
    return wraps and not any(_overrides(middleware, name) for name in (*hooks, *SYNC_HOOKS, "state_schema"))


def _tools_of(middleware: Middleware) -> Sequence[BaseTool]:
    return getattr(middleware, "tools", ())  # LangChain declares it without a default


def _overrides(middleware: Middleware, hook: str) -> bool:
    return getattr(type(middleware), hook, None) is not getattr(AgentMiddleware, hook, None)


class QuickRequest(ModelRequest[RunContext]):
    """A `ModelRequest` that is copied in one step."""

    @classmethod
    def made(cls, **parts: Any) -> Self:
        """Return a request with these fields; all others have their defaults."""
        quick = object.__new__(cls)
        quick.__dict__.update(tool_choice=None, response_format=None, model_settings={}, **parts)
        return quick

    @classmethod
    def of(cls, request: ModelCall) -> Self:
        """Return a copy of `request` as a `QuickRequest`."""
        quick = object.__new__(cls)
        quick.__dict__.update(request.__dict__)
        return quick

    @override
    def override(self, **changes: Any) -> Self:
        changed = self.of(self)
        if "system_prompt" in changes:  # the deprecated name
            prompt = changes.pop("system_prompt")
            changes["system_message"] = None if prompt is None else SystemMessage(prompt)
        changed.__dict__.update(changes)
        return changed
