"""A request to a model that many middlewares can change cheaply.

LangChain's own copies itself through a constructor that reports every attribute it sets; a dozen middlewares
deep that takes longer than all of their thinking.
"""

from typing import Any, Self

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import SystemMessage
from typing_extensions import override

from deerflow.agents.types import ModelCall
from deerflow.context import RunContext


class QuickRequest(ModelRequest[RunContext]):
    """The same request, copied in one step."""

    @classmethod
    def made(cls, **parts: Any) -> Self:
        """Return a request of these parts, and nothing else that could be set."""
        quick = object.__new__(cls)
        quick.__dict__.update(tool_choice=None, response_format=None, model_settings={}, **parts)
        return quick

    @classmethod
    def of(cls, request: ModelCall) -> Self:
        """Return a request as a quick one."""
        quick = object.__new__(cls)
        quick.__dict__.update(request.__dict__)
        return quick

    @override
    def override(self, **changes: Any) -> Self:
        changed = self.of(self)
        if "system_prompt" in changes:  # the older spelling
            prompt = changes.pop("system_prompt")
            changes["system_message"] = None if prompt is None else SystemMessage(prompt)
        changed.__dict__.update(changes)
        return changed
