"""Ends a turn at a limit with a summary of the work done, instead of a call that may not run."""

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

MAX_SHOWN_CALLS = 10
MAX_SHOWN_CHARS = 160


def stopped_answer(
    message: BaseMessage, *, code: str, reason: str, done: Sequence[tuple[str, str]] = ()
) -> BaseMessage:
    """Return a response without its tool calls that says why the turn ended and what was done.

    Args:
        code: The reason for programs, stored as `stop_reason`.
        done: Name and result of each call of the turn, oldest first.
    """
    if not isinstance(message, AIMessage):
        return message
    said = message.text.strip()
    content = "\n\n".join(part for part in (said, reason, what_was_done(done)) if part)
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    changes: dict[str, Any] = {
        "content": content,
        "tool_calls": [],
        "invalid_tool_calls": [],
        "additional_kwargs": {**kwargs, "stop_reason": code},
    }
    return message.model_copy(update=changes)


def what_was_done(done: Iterable[tuple[str, str]]) -> str:
    """Return a list of the distinct calls with the first line of their results; empty if there were none."""
    counted: dict[tuple[str, str], int] = {}
    for name, result in done:
        line = next((line.strip() for line in result.splitlines() if line.strip()), "(nothing)")
        key = (name, line[:MAX_SHOWN_CHARS])
        counted[key] = counted.get(key, 0) + 1
    lines = [
        f"- {name}{f' ({count} times)' if count > 1 else ''}: {line}"
        for (name, line), count in list(counted.items())[-MAX_SHOWN_CALLS:]
    ]
    return "\n".join(["What was done:", *lines]) if lines else ""
