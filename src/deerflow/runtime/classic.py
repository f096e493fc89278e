"""Messages in the older form of LangGraph's streams: each event holds the whole message so far.

`messages/metadata` introduces a message, `messages/partial` repeats it with every piece that is added,
and `messages/complete` brings one that came whole. The log keeps pieces; this makes wholes of them for
the readers that ask for it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from langchain_core.messages import AIMessageChunk, BaseMessageChunk, message_chunk_to_message

from deerflow.domain import StreamEvent
from deerflow.runtime.serialization import to_json


class ClassicMessages:
    """Puts the pieces of one run's messages together."""

    def __init__(self) -> None:
        self._open: dict[str, BaseMessageChunk] = {}

    def take(self, event: StreamEvent) -> list[StreamEvent]:
        """Return what an event is in the older form: itself, unless it is a message."""
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
            self._open.pop(key, None)  # whole now, or withdrawn: nothing is added to it any more
            return "complete", message
        piece = AIMessageChunk(**{name: value for name, value in message.items() if value is not None})
        known = self._open.get(key)
        self._open[key] = piece if known is None else known + piece
        return "partial", message_chunk_to_message(self._open[key])
