"""Parses messages from clients, in any of LangChain's formats."""

from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from deerflow.errors import InvalidInputError

MAX_MESSAGES = 1000
MAX_BLOCKS = 1000


def parse_messages(raw: Any, *, where: str = "input") -> list[BaseMessage]:
    """Parse messages in any of LangChain's dict formats; the error names the invalid one.

    Args:
        where: The field that holds the messages, for the error.
    """
    items = raw if isinstance(raw, list) else [raw]
    _check_size(items, where)
    parsed: list[BaseMessage] = []
    for index, item in enumerate(items):
        try:
            parsed += convert_to_messages([_normalised(item)])
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise InvalidInputError(
                f"{where}.messages[{index}] is not a message: {_brief(error)}. "
                'Send {"role": "user", "content": "…"} or {"type": "human", "content": "…"}.'
            ) from error
    return parsed


def _check_size(items: list[Any], where: str) -> None:
    """Reject more messages or blocks than can be parsed without blocking the event loop too long."""
    if len(items) > MAX_MESSAGES:
        raise InvalidInputError(
            f"{where}.messages has {len(items)} messages; one request may add {MAX_MESSAGES}. "
            "Send the rest in further requests, such as POST /threads/{thread_id}/state."
        )
    for index, item in enumerate(items):
        content = item.get("content") if isinstance(item, dict) else None
        if isinstance(content, list) and len(content) > MAX_BLOCKS:
            raise InvalidInputError(
                f"{where}.messages[{index}].content has {len(content)} blocks; a message may have "
                f"{MAX_BLOCKS}. Join texts into one block, or upload a file."
            )


def _normalised(item: Any) -> Any:
    """Return a message dict with one key for its role: `type` and `role` may both be present."""
    if not isinstance(item, dict):
        return item
    if "type" in item and "role" in item:
        return {key: value for key, value in item.items() if key != "role"}
    return item


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
