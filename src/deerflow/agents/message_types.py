"""Tells kinds of messages apart, quickly.

Python finds out at once that an object is of a class itself, but slowly that it is not: pydantic's classes
ask around. In a long conversation a dozen middlewares ask that of every message, before every call.
"""

from collections.abc import Iterable

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from typing_extensions import TypeIs

_HUMAN_OR_AI = frozenset({HumanMessage, AIMessage})
_AI_OR_TOOL = frozenset({AIMessage, ToolMessage})
_HUMAN_OR_TOOL = frozenset({HumanMessage, ToolMessage})


def is_human(message: BaseMessage) -> TypeIs[HumanMessage]:
    """Tell whether a user said it."""
    return type(message) not in _AI_OR_TOOL and isinstance(message, HumanMessage)


def is_ai(message: BaseMessage) -> TypeIs[AIMessage]:
    """Tell whether a model said it."""
    return type(message) not in _HUMAN_OR_TOOL and isinstance(message, AIMessage)


def may_have_results(messages: Iterable[BaseMessage]) -> bool:
    """Tell whether tools may have returned something; at once where there was only talk."""
    return not _HUMAN_OR_AI.issuperset(map(type, messages))


def is_result(message: BaseMessage) -> TypeIs[ToolMessage]:
    """Tell whether a tool returned it."""
    return type(message) not in _HUMAN_OR_AI and isinstance(message, ToolMessage)
