"""Offers the shell only where commands can run.

The tool is part of every agent, so that one built agent serves all threads; whether this run's sandbox
takes commands is known to its context alone.
"""

from langchain_core.tools import BaseTool
from typing_extensions import override

from deerflow.agents.middlewares.base import HouseMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

SHELL = "bash"


class ShellOfferMiddleware(HouseMiddleware):
    """Hides `bash` from the model when the sandbox refuses commands."""

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        if request.runtime.context.sandbox.refusal is None:
            return await handler(request)
        offered = [tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name == SHELL)]
        return await handler(request.override(tools=offered))
