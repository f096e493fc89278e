"""A model request that middlewares can copy cheaply.

LangChain's `ModelRequest` copies itself through a constructor with a custom `__setattr__`; with a dozen
middlewares that takes longer than their own work.
"""

from typing import Any, Self

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import SystemMessage
from typing_extensions import override

from deerflow.agents.types import ModelCall
from deerflow.context import RunContext


class QuickRequest(ModelRequest[RunContext]):
    """A `ModelRequest` that is copied in one step."""

    @classmethod
    def made(cls, **parts: Any) -> Self:
        """Return a request with these fields; all others have their defaults."""
        quick = object.__new__(cls)
        quick.__dict__.update(tool_choice=None, response_format=None, model_settings={}, **parts)
        return quick

    @classmethod
    def of(cls, request: ModelCall) -> Self:
        """Return a copy of `request` as a `QuickRequest`."""
        quick = object.__new__(cls)
        quick.__dict__.update(request.__dict__)
        return quick

    @override
    def override(self, **changes: Any) -> Self:
        changed = self.of(self)
        if "system_prompt" in changes:  # the deprecated name
            prompt = changes.pop("system_prompt")
            changes["system_message"] = None if prompt is None else SystemMessage(prompt)
        changed.__dict__.update(changes)
        return changed
