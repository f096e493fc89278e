"""Converts messages to LangGraph's older stream format: each event holds the whole message so far.

`messages/metadata` announces a message, `messages/partial` repeats it with every chunk that is added,
and `messages/complete` holds a message that was not streamed. The log stores chunks; this joins them for
the readers that request this format.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from langchain_core.messages import AIMessageChunk, BaseMessageChunk, message_chunk_to_message

from deerflow.domain import StreamEvent
from deerflow.runtime.serialization import to_json


class ClassicMessages:
    """Joins the message chunks of one run."""

    def __init__(self) -> None:
        self._open: dict[str, BaseMessageChunk] = {}

    def take(self, event: StreamEvent) -> list[StreamEvent]:
        """Return an event in the older format; events other than messages are unchanged."""
        mode, _, namespace = event.kind.partition("|")
        if mode != "messages":
            return [event]
        message, metadata = orjson.loads(event.data)
        suffix = f"|{namespace}" if namespace else ""
        shown = []
        key = message.get("id") or ""
        if key not in self._open:
            data = to_json({key: {"metadata": metadata}})
            shown.append(replace(event, kind=f"messages/metadata{suffix}", data=data))
        step, whole = self._whole(key, message)
        return [*shown, replace(event, kind=f"messages/{step}{suffix}", data=to_json([whole]))]

    def _whole(self, key: str, message: Mapping[str, Any]) -> tuple[str, Any]:
        if message.get("type") != "AIMessageChunk":
            self._open.pop(key, None)  # complete or withdrawn: no more chunks follow
            return "complete", message
        piece = AIMessageChunk(**{name: value for name, value in message.items() if value is not None})
        known = self._open.get(key)
        self._open[key] = piece if known is None else known + piece
        return "partial", message_chunk_to_message(self._open[key])
