"""The base class of all DeerFlow middlewares: which agents they apply to, and their order in the chain."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    after: ClassVar[tuple[str, ...]] = ()
    """Names of classes that must be further out, if they are in the chain."""
    before: ClassVar[tuple[str, ...]] = ()
    """Names of classes that must be further in, if they are in the chain."""


def with_update(response: ModelResponse[Any], update: Mapping[str, Any]) -> ExtendedModelResponse[Any]:
    """Return a model response that also updates the state."""
    return ExtendedModelResponse(model_response=response, command=Command(update=dict(update)))


def error_result(call: ToolCall | InvalidToolCall, text: str) -> ToolMessage:
    """Return an error as the result of a tool call that was not run, or failed."""
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")


def check_order(chain: Sequence[ChainMiddleware]) -> None:
    """Raise if a chain violates the order that its middlewares declare: order is behaviour."""
    faults = [*_unknown(chain), *_misordered(chain)]
    if faults:
        raise ValueError(f"the chain is in a wrong order: {'; '.join(faults)}")


def _unknown(chain: Sequence[ChainMiddleware]) -> Iterator[str]:
    known = {cls.__name__ for cls in ChainMiddleware.__subclasses__()}
    for middleware in chain:
        for name in (*middleware.after, *middleware.before):
            if name not in known:
                yield f"{type(middleware).__name__} names {name}, which is no middleware"


def _misordered(chain: Sequence[ChainMiddleware]) -> Iterator[str]:
    index = {type(middleware).__name__: index for index, middleware in enumerate(chain)}
    for middleware in chain:
        name = type(middleware).__name__
        for outer in middleware.after:
            if index.get(outer, -1) > index[name]:
                yield f"{name} must come after {outer}"
        for inner in middleware.before:
            if index.get(inner, len(chain)) < index[name]:
                yield f"{name} must come before {inner}"
