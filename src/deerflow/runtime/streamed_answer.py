"""Withdraws the partial output of failed attempts at a model call from the stream.

An attempt that fails midway has streamed its beginning. When the next attempt begins to stream, that
beginning is withdrawn with a `remove` message, which LangGraph's clients support; until then, and when no
attempt gets further, it stays.
"""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, RemoveMessage

_MODEL_NODE = "model"


class StreamedAnswer:
    """The lead agent's answer that is being streamed."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._is_whole = False
        self._was_retried = False

    def retry(self) -> None:
        """Record that a failed model call is retried."""
        self._was_retried = True

    def settle(self) -> None:
        """Record that the step is done: the streamed answer is in the thread."""
        self._id, self._is_whole, self._was_retried = None, False, False

    def take(self, message: BaseMessage, metadata: Mapping[str, Any]) -> RemoveMessage | None:
        """Return the withdrawal of an earlier attempt to send before this message or chunk, if any."""
        if not isinstance(message, AIMessage) or metadata.get("langgraph_node") != _MODEL_NODE:
            return None
        if message.id == self._id or not message.id:
            self._is_whole = self._is_whole or _is_last(message)
            return None
        earlier, was_whole = self._id, self._is_whole
        self._id, self._is_whole = message.id, _is_last(message)
        if earlier is None or was_whole:
            return None
        # A fallback answers the same call: its id is the call's id with a suffix.
        if not self._was_retried and not message.id.startswith(earlier):
            return None
        self._was_retried = False
        return RemoveMessage(id=earlier)


def _is_last(message: AIMessage) -> bool:
    return not isinstance(message, AIMessageChunk) or message.chunk_position == "last"
