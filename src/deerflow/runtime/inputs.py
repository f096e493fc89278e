"""Turns what a client sends into what the graph takes, refusing what it cannot use."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.types import Command

from deerflow.domain import RunRequest, is_thread_id, new_id
from deerflow.errors import InvalidInputError


def graph_input(request: RunRequest) -> Any:
    """Return the graph's input for the first attempt at a run."""
    if request.command is not None:
        return _command(request.command)
    if request.input is None:
        return None
    values = dict(request.input)
    if "messages" in values:
        values["messages"] = parse_messages(values["messages"])
    return values


def with_message_ids(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return an input whose messages all have ids, so that every attempt at it adds the same ones.

    Also the place where malformed messages are refused, before a run is admitted.
    """
    if values is None or "messages" not in values:
        return values
    raw = values["messages"]
    parse_messages(raw)
    messages = raw if isinstance(raw, list) else [raw]
    return {**values, "messages": [_with_id(message) for message in messages]}


def check_thread_id(thread_id: str) -> None:
    """Refuse what cannot name a thread."""
    if not is_thread_id(thread_id):
        raise InvalidInputError(
            f"thread id {thread_id[:80]!a} may only have letters, digits, '-' and '_' (64)"
        )


def parse_messages(raw: Any) -> list[BaseMessage]:
    """Return messages in any of LangChain's dict forms; the error names the one that is wrong."""
    items = raw if isinstance(raw, list) else [raw]
    parsed: list[BaseMessage] = []
    for index, item in enumerate(items):
        try:
            parsed += convert_to_messages([_normalised(item)])
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise InvalidInputError(
                f"input.messages[{index}] is not a message: {_brief(error)}. "
                'Send {"role": "user", "content": "…"} or {"type": "human", "content": "…"}.'
            ) from error
    return parsed


def _normalised(item: Any) -> Any:
    """Return a message dict with one word for its role: `type` and `role` may both be there."""
    if not isinstance(item, dict):
        return item
    if "type" in item and "role" in item:
        return {key: value for key, value in item.items() if key != "role"}
    return item


def _with_id(message: Any) -> Any:
    if isinstance(message, str):
        return {"type": "human", "content": message, "id": new_id()}
    if isinstance(message, dict) and not message.get("id"):
        return {**message, "id": new_id()}
    return message


def _command(raw: Mapping[str, Any]) -> Command[Any]:
    known = {"resume", "goto", "update"}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise InvalidInputError(f"command has unknown keys {unknown}; allowed are {sorted(known)}")
    update = raw.get("update")
    if isinstance(update, dict) and "messages" in update:
        update = {**update, "messages": parse_messages(update["messages"])}
    return Command(resume=raw.get("resume"), goto=raw.get("goto") or (), update=update)


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
