"""Describes each tool to the model once instead of before every call.

Turning a dozen tools into schemas takes longer than everything else in front of a model call. All providers
read the form used here. Tools with settings for one provider stay as they are, since only its own
class can read those.
"""

from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


class ReadyToolsMiddleware(ChainMiddleware):
    """Hands the model the tools' schemas; the agent's tools never change, so neither do these."""

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
        if known is None:  # the tool is kept beside its schema, so that its address stays its own
            known = self._schemas[id(tool)] = (tool, convert_to_openai_tool(tool))
        return known[1]
