"""Older forms of the event stream, made from a run's events while they are sent."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from langchain_core.messages import AIMessageChunk, BaseMessageChunk, message_chunk_to_message

from deerflow.domain import StreamEvent
from deerflow.domain.task_events import TaskChange, TaskEvents
from deerflow.runtime.serialization import to_json

Converter = Callable[[StreamEvent], list[StreamEvent]]
"""Returns an event in the other format."""


async def convert_events(
    batches: AsyncIterator[list[StreamEvent]], *converters: Converter, after_seq: int = -1
) -> AsyncIterator[list[StreamEvent]]:
    """Yield a run's events converted by each of the `converters` in turn.

    Args:
        batches: The run's events from the first one on.
        after_seq: Events up to this number update the converters' state, and are not yielded.
    """
    async for batch in batches:
        converted = batch
        for convert in converters:
            converted = [frame for event in converted for frame in convert(event)]
        shown = [event for event in converted if event.seq > after_seq]
        if shown or not batch:
            yield shown


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


_TASK_ID = b'"task_id"'


class SubgraphFrames:
    """Converts the events of one run's sub-agents, namespaced below the tool call that started them."""

    def __init__(self) -> None:
        self._events = TaskEvents()
        self._messages: dict[str, list[Any]] = {}

    def take(self, event: StreamEvent) -> list[StreamEvent]:
        """Return the subgraph events for an event, followed by the event itself."""
        if event.kind != "custom" or _TASK_ID not in event.data:
            return [event]
        change = self._events.apply(orjson.loads(event.data))
        return [event] if change is None else [*self._frames(event, change), event]

    def _frames(self, event: StreamEvent, change: TaskChange) -> list[StreamEvent]:
        task_id, message = change.task.task_id, change.message
        namespace = "|".join(f"tools:{each}" for each in change.task.path)
        match change.kind:
            case "started":
                messages = self._messages[task_id] = [change.task.prompt_message]
                return [_frame(event, "values", namespace, {"messages": messages})]
            case "message" if isinstance(message, dict) and task_id in self._messages:
                self._messages[task_id].append(message)
                node = "tools" if message.get("type") == "tool" else "model"
                metadata = {"langgraph_node": node, "langgraph_checkpoint_ns": namespace, "task_id": task_id}
                return [
                    _frame(event, "messages", namespace, [message, metadata]),
                    _frame(event, "updates", namespace, {node: {"messages": [message]}}),
                ]
            case "ended" if task_id in self._messages:
                return [_frame(event, "values", namespace, {"messages": self._messages.pop(task_id)})]
        return []


def _frame(event: StreamEvent, mode: str, namespace: str, payload: Any) -> StreamEvent:
    return replace(event, kind=f"{mode}|{namespace}", data=to_json(payload))
