"""Turns a tool's exception into a result the model can act on.

A failed tool is a result for the model, not the end of the run. Interrupts and cancellation are not failures
and propagate.
"""

import logging

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ToolCall, ToolHandler, ToolResult
from deerflow.connection_errors import without_objects
from deerflow.errors import DeerFlowError

logger = logging.getLogger(__name__)

MAX_DETAIL_CHARS = 500


class ToolErrorMiddleware(ChainMiddleware):
    """Returns an error result for a call whose tool raised."""

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:  # a tool may raise anything; the model gets an error result
            name = request.tool_call["name"]
            if not isinstance(error, DeerFlowError):
                logger.exception("tool %s failed", name)
            return ToolMessage(
                explain(name, error),
                tool_call_id=request.tool_call["id"] or "",
                name=name,
                status="error",
            )


def explain(tool: str, error: Exception) -> str:
    """Return a sentence that says what failed and what to do about it."""
    if isinstance(error, DeerFlowError):
        return f"Error: {error}"
    detail = without_objects(str(error))[:MAX_DETAIL_CHARS]
    what = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
    return f"Error: {tool} failed ({what}). Go on with what you have, or try another way."
