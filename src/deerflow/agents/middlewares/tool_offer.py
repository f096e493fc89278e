"""Chooses the tools of each model request: what this run can use, deferred tools on demand, routed MCP tools.

Every agent has all tools, so that one compiled agent serves all threads. Of deferred tools the model gets the
names instead of the schemas; the list is the same for the whole thread, so that the prompt can be cached, and
`tool_search` adds single tools. A server's `routing` setting lists keywords: a message that contains one is
followed by a hint, and the first matching deferred tools are loaded at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self, cast

from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware, error_result, with_update
from deerflow.agents.middlewares.reminder import extended, reminder
from deerflow.agents.middlewares.tool_call_removal import ASK_CLARIFICATION
from deerflow.agents.prompts import deferred_section
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolRequest, ToolResult
from deerflow.config import Settings
from deerflow.context import RunContext
from deerflow.tools.deferred import TOOL_SEARCH, fingerprint, is_deferred, is_promoted
from deerflow.tools.mcp import ROUTING

SHELLS = frozenset({"bash", "python"})


class ToolOfferMiddleware(ChainMiddleware):
    """Hides shell tools if the sandbox runs no commands, and `ask_clarification` if no person can answer."""

    before = ("LoopDetectionMiddleware", "ReadyToolsMiddleware")

    def __init__(self, *, has_questions: bool = True) -> None:
        super().__init__()
        self._never = frozenset[str]() if has_questions else frozenset({ASK_CLARIFICATION})

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(has_questions="clarification" not in settings.middlewares.off)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        hidden = hidden_tools(request.runtime.context) | self._never
        if not hidden:
            return await handler(request)
        offered = [tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name in hidden)]
        return await handler(request.override(tools=offered))


def hidden_tools(context: RunContext) -> set[str]:
    """Return the names of the tools that this run cannot use."""
    hidden: set[str] = set()
    if context.sandbox.refusal is not None:
        hidden |= SHELLS
    if not context.is_interactive or context.extra.get("disable_clarification") is True:
        hidden.add(ASK_CLARIFICATION)
    return hidden


REFUSAL = (
    "{name} was not called: you have not loaded it, or its server describes it differently now. Call "
    '{search} with the query "select:{name}", read what it takes, then call it.'
)


class DeferredToolsMiddleware(ChainMiddleware):
    """Hides the schemas of deferred tools until they are searched for, and rejects earlier calls."""

    before = ("ReadyToolsMiddleware",)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        return cls() if settings.tool_search.enabled else None

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
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        tool = request.tool
        if tool is None or not is_deferred(tool) or not _can_search(request.runtime.tools):
            return await handler(request)
        if is_promoted(tool, request.state.get("promoted")):
            return await handler(request)
        return error_result(request.tool_call, REFUSAL.format(name=tool.name, search=TOOL_SEARCH))


@lru_cache(maxsize=64)
def _section(names: tuple[str, ...]) -> str:
    return deferred_section(names)


def _can_search(tools: Iterable[BaseTool | dict[str, Any]]) -> bool:
    return any(isinstance(tool, BaseTool) and tool.name == TOOL_SEARCH for tool in tools)


HINT = "For this request, prefer these tools where they fit: {names}."
MAX_HINTED = 10


class McpRoutingMiddleware(ChainMiddleware):
    """Names the tools whose keywords match, and loads the deferred ones."""

    before = ("DeferredToolsMiddleware",)

    def __init__(self, *, top_k: int) -> None:
        super().__init__()
        self._top_k = top_k

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(top_k=settings.tool_search.auto_promote_top_k)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        question = state["messages"][-1] if state["messages"] else None
        if not isinstance(question, HumanMessage):
            return await handler(request)  # the hint is given once, directly after the user's message
        wanted = routed(request.tools, str(question.text))
        if not wanted:
            return await handler(request)
        promoted = self._promoted(wanted, state.get("promoted"))
        names = ", ".join(tool.name for tool in wanted[:MAX_HINTED])
        response = await handler(
            request.override(
                messages=[*request.messages, reminder(HINT.format(names=names))],
                state=cast("Any", {**state, "promoted": {**(state.get("promoted") or {}), **promoted}}),
            )
        )
        if not promoted:
            return response
        return with_update(response, {"promoted": promoted})

    def _promoted(self, wanted: Iterable[BaseTool], known: Mapping[str, str] | None) -> dict[str, str]:
        new = [tool for tool in wanted if is_deferred(tool) and not is_promoted(tool, known)]
        return {tool.name: fingerprint(tool) for tool in new[: self._top_k]}


def routed(tools: Sequence[BaseTool | dict[str, Any]], text: str) -> list[BaseTool]:
    """Return the tools with a keyword in `text`, highest priority first."""
    said = text.casefold()
    found = [
        (route, tool)
        for tool in tools
        if isinstance(tool, BaseTool) and (route := (tool.metadata or {}).get(ROUTING))
    ]
    hits = [
        (route["priority"], tool) for route, tool in found if any(word in said for word in route["words"])
    ]
    return [tool for _, tool in sorted(hits, key=lambda hit: -hit[0])]


class ReadyToolsMiddleware(ChainMiddleware):
    """Replaces tools by cached schemas; an agent's tools never change, so neither do these."""

    def __init__(self) -> None:
        super().__init__()
        self._schemas: dict[int, tuple[BaseTool, dict[str, Any]]] = {}

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        return await handler(request.override(tools=[self._ready(tool) for tool in request.tools]))

    def _ready(self, tool: BaseTool | dict[str, Any]) -> BaseTool | dict[str, Any]:
        if isinstance(tool, dict) or tool.extras:
            return tool
        known = self._schemas.get(id(tool))
        if known is None:  # the cache holds the tool, so that its id is not reused
            known = self._schemas[id(tool)] = (tool, convert_to_openai_tool(tool))
        return known[1]
