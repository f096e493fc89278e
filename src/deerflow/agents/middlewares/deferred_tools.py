"""Gives the model the names of deferred tools instead of their schemas.

The list of names is the same for the whole thread, so that the prompt can be cached; `tool_search` adds
single tools to the request. An agent without `tool_search` was assigned its tools explicitly and gets all of
them.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.tags import extended
from deerflow.agents.prompts import deferred_section
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolCall, ToolHandler, ToolResult
from deerflow.tools.deferred import TOOL_SEARCH, is_deferred, is_promoted

REFUSAL = (
    "{name} was not called: you have not loaded it, or its server describes it differently now. Call "
    '{search} with the query "select:{name}", read what it takes, then call it.'
)


class DeferredToolsMiddleware(ChainMiddleware):
    """Hides the schemas of deferred tools until they are searched for, and rejects earlier calls."""

    before = ("ReadyToolsMiddleware",)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        names = tuple(tool.name for tool in request.tools if isinstance(tool, BaseTool) and is_deferred(tool))
        if not names or not _can_search(request.tools):
            return await handler(request)
        promoted = cast("ThreadState", request.state).get("promoted")
        offered = [
            tool
            for tool in request.tools
            if not (isinstance(tool, BaseTool) and is_deferred(tool)) or is_promoted(tool, promoted)
        ]
        prompt = extended(request.system_message, _section(names))
        return await handler(request.override(tools=offered, system_message=prompt))

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        tool = request.tool
        if tool is None or not is_deferred(tool) or not _can_search(request.runtime.tools):
            return await handler(request)
        if is_promoted(tool, request.state.get("promoted")):
            return await handler(request)
        return ToolMessage(
            REFUSAL.format(name=tool.name, search=TOOL_SEARCH),
            tool_call_id=request.tool_call["id"] or "",
            name=tool.name,
            status="error",
        )


@lru_cache(maxsize=64)
def _section(names: tuple[str, ...]) -> str:
    return deferred_section(names)


def _can_search(tools: Iterable[BaseTool | dict[str, Any]]) -> bool:
    return any(isinstance(tool, BaseTool) and tool.name == TOOL_SEARCH for tool in tools)
