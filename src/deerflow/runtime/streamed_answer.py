"""Keeps broken-off tries of one model call from piling up in the stream.

A try that breaks off in the middle has shown its beginning. When the next try begins to stream, that
beginning is withdrawn with a `remove` message, as LangGraph's clients know it; until then, and when no try
comes any further, it stays.
"""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, RemoveMessage

_MODEL_NODE = "model"


class StreamedAnswer:
    """The answer of the lead agent that is being streamed."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._is_whole = False
        self._was_retried = False

    def retry(self) -> None:
        """Take note that the model is asked again because a try has failed."""
        self._was_retried = True

    def settle(self) -> None:
        """Take note that the step is over: what was streamed is in the thread."""
        self._id, self._is_whole, self._was_retried = None, False, False

    def take(self, message: BaseMessage, metadata: Mapping[str, Any]) -> RemoveMessage | None:
        """Return what has to be said before this message or piece: that an earlier try is withdrawn."""
        if not isinstance(message, AIMessage) or metadata.get("langgraph_node") != _MODEL_NODE:
            return None
        if message.id == self._id or not message.id:
            self._is_whole = self._is_whole or _is_last(message)
            return None
        earlier, was_whole = self._id, self._is_whole
        self._id, self._is_whole = message.id, _is_last(message)
        if earlier is None or was_whole:
            return None
        # A fallback answers the same call: its id is that of the call with something behind it.
        if not self._was_retried and not message.id.startswith(earlier):
            return None
        self._was_retried = False
        return RemoveMessage(id=earlier)


def _is_last(message: AIMessage) -> bool:
    return not isinstance(message, AIMessageChunk) or message.chunk_position == "last"
