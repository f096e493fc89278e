"""Converts each tool to its schema once instead of before every model call.

Converting a dozen tools takes longer than everything else before a model call. All providers accept the
OpenAI format used here. Tools with provider-specific `extras` are not converted, since only the provider's
own class can read those.
"""

from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


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
