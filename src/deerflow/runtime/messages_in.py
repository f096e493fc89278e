"""Messages as clients send them, in any of LangChain's forms."""

from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from deerflow.errors import InvalidInputError


def parse_messages(raw: Any, *, where: str = "input") -> list[BaseMessage]:
    """Return messages in any of LangChain's dict forms; the error names the one that is wrong.

    Args:
        where: What holds the messages, for the error.
    """
    items = raw if isinstance(raw, list) else [raw]
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


def _normalised(item: Any) -> Any:
    """Return a message dict with one word for its role: `type` and `role` may both be there."""
    if not isinstance(item, dict):
        return item
    if "type" in item and "role" in item:
        return {key: value for key, value in item.items() if key != "role"}
    return item


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
