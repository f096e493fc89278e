"""The base class of all DeerFlow middlewares: which agents they apply to, and their order in the chain."""

from collections.abc import Callable, Mapping, Sequence
from enum import Flag, auto
from typing import Any, ClassVar, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import InvalidToolCall, ToolCall, ToolMessage
from langgraph.types import Command

from deerflow.agents.state import ThreadState
from deerflow.config import Switchable
from deerflow.context import RunContext

ModelByName: TypeAlias = Callable[[str], BaseChatModel]


class AgentKind(Flag):
    """The kinds of agents a middleware applies to."""

    LEAD = auto()
    SUBAGENT = auto()
    BOTH = LEAD | SUBAGENT


class ChainMiddleware(AgentMiddleware[ThreadState, RunContext, Any]):
    """Base class of middlewares; an instance holds only settings, since concurrent runs share it.

    One that the settings configure has a class method `from_settings`, which returns None if it is off.
    """

    applies_to: ClassVar[AgentKind] = AgentKind.BOTH
    """The agents that get this middleware."""
    switch: ClassVar[Switchable | None] = None
    """The name by which `middlewares.off` removes it."""
    before: ClassVar[tuple[str, ...]] = ()
    """Names of classes that must be further in, if they are in the chain; where a breach would be silent."""


def with_update(response: ModelResponse[Any], update: Mapping[str, Any]) -> ExtendedModelResponse[Any]:
    """Return a model response that also updates the state."""
    return ExtendedModelResponse(model_response=response, command=Command(update=dict(update)))


def error_result(call: ToolCall | InvalidToolCall, text: str) -> ToolMessage:
    """Return an error as the result of a tool call that was not run, or failed."""
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")


def check_order(chain: Sequence[ChainMiddleware]) -> None:
    """Raise if a chain violates the order that its middlewares declare: order is behaviour."""
    known = {cls.__name__ for cls in ChainMiddleware.__subclasses__()}
    outer: set[str] = set()
    faults: list[str] = []
    for middleware in chain:
        name = type(middleware).__name__
        for inner in middleware.before:
            if inner not in known:
                faults.append(f"{name} names {inner}, which is no middleware")
            elif inner in outer:
                faults.append(f"{name} must come before {inner}")
        outer.add(name)
    if faults:
        raise ValueError(f"the chain is in a wrong order: {'; '.join(faults)}")
