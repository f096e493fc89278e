"""Adds an agent's own model settings, such as a lower temperature, to its model calls."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


class ModelSettingsMiddleware(ChainMiddleware):
    """Adds the same settings to every model call."""

    def __init__(self, *, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._settings = dict(settings)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        return await handler(request.override(model_settings={**request.model_settings, **self._settings}))
