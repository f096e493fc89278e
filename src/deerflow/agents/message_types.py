"""Fast type checks for messages.

`isinstance` is fast when an object's type is the class itself, but slow when the check fails: Python then
calls `__instancecheck__` of pydantic's metaclass. A dozen middlewares check every message before every model
call.
"""

from collections.abc import Iterable

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from typing_extensions import TypeIs

_HUMAN_OR_AI = frozenset({HumanMessage, AIMessage})
_AI_OR_TOOL = frozenset({AIMessage, ToolMessage})
_HUMAN_OR_TOOL = frozenset({HumanMessage, ToolMessage})


def is_human(message: BaseMessage) -> TypeIs[HumanMessage]:
    """Return whether this is a user message."""
    return type(message) not in _AI_OR_TOOL and isinstance(message, HumanMessage)


def is_ai(message: BaseMessage) -> TypeIs[AIMessage]:
    """Return whether this is a model response."""
    return type(message) not in _HUMAN_OR_TOOL and isinstance(message, AIMessage)


def may_have_results(messages: Iterable[BaseMessage]) -> bool:
    """Return whether there may be tool results; fast for conversations that have none."""
    return not _HUMAN_OR_AI.issuperset(map(type, messages))


def is_result(message: BaseMessage) -> TypeIs[ToolMessage]:
    """Return whether this is a tool result."""
    return type(message) not in _HUMAN_OR_AI and isinstance(message, ToolMessage)
