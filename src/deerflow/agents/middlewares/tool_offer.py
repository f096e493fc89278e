"""Offers only the tools that this run can use.

Every agent has all tools, so that one compiled agent serves all threads. Only the run's context says whether
the sandbox runs commands and whether a person can answer questions.
"""

from langchain_core.tools import BaseTool
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.clarification import ASK_CLARIFICATION
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.context import RunContext

SHELLS = frozenset({"bash", "python"})


class ToolOfferMiddleware(ChainMiddleware):
    """Hides shell tools if the sandbox runs no commands, and `ask_clarification` if no person can answer."""

    def __init__(self, *, has_questions: bool = True) -> None:
        super().__init__()
        self._never = frozenset[str]() if has_questions else frozenset({ASK_CLARIFICATION})

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
