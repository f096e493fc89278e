"""Suggests MCP tools whose routing keywords occur in the user's message.

A server's `routing` setting lists keywords, such as a product's name. A message that contains one is followed
by a hint; at that position it leaves the cached part of the prompt unchanged. The first few matching deferred
tools are loaded at once, so that no search is needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.tags import reminder
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.tools.deferred import fingerprint, is_deferred, is_promoted
from deerflow.tools.mcp import ROUTING

HINT = "For this request, prefer these tools where they fit: {names}."
MAX_HINTED = 10


class McpRoutingMiddleware(ChainMiddleware):
    """Names the tools whose keywords match, and loads the deferred ones."""

    after = ("DanglingToolCallMiddleware",)
    before = ("DeferredToolsMiddleware",)

    def __init__(self, *, top_k: int) -> None:
        super().__init__()
        self._top_k = top_k

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
        return ExtendedModelResponse(model_response=response, command=Command(update={"promoted": promoted}))

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
