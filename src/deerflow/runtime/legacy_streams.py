"""Older forms of the event stream, made from a run's events while they are sent."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from langchain_core.messages import AIMessageChunk, BaseMessageChunk, message_chunk_to_message

from deerflow.domain import StreamEvent
from deerflow.runtime.serialization import to_json

Teller = Callable[[StreamEvent], list[StreamEvent]]
"""Returns an event in the other format."""


async def retold(
    batches: AsyncIterator[list[StreamEvent]], *tellers: Teller, after_seq: int = -1
) -> AsyncIterator[list[StreamEvent]]:
    """Yield a run's events converted by each of the `tellers` in turn.

    Args:
        batches: The run's events from the first one on.
        after_seq: Events up to this number update the converters' state, and are not yielded.
    """
    async for batch in batches:
        told = batch
        for tell in tellers:
            told = [frame for event in told for frame in tell(event)]
        shown = [event for event in told if event.seq > after_seq]
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


_ENDS = frozenset({"task_completed", "task_failed", "task_timed_out", "task_cancelled"})
_MARK = b'"task_id"'


@dataclass(slots=True)
class _Task:
    namespace: str
    messages: list[Any] = field(default_factory=list)


class SubgraphFrames:
    """Converts the events of one run's sub-agents, namespaced below the tool call that started them."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def take(self, event: StreamEvent) -> list[StreamEvent]:
        """Return the subgraph events for an event, followed by the event itself."""
        if event.kind != "custom" or _MARK not in event.data:
            return [event]
        told = orjson.loads(event.data)
        if not isinstance(told, dict) or not isinstance(told.get("task_id"), str):
            return [event]
        return [*self._frames(event, told), event]

    def _frames(self, event: StreamEvent, told: Mapping[str, Any]) -> list[StreamEvent]:
        task_id, kind, message = told["task_id"], told.get("type"), told.get("message")
        if kind == "task_started" and task_id not in self._tasks:
            self._tasks[task_id] = task = self._begin(told)
            return [_frame(event, "values", task, {"messages": task.messages})]
        known = self._tasks.get(task_id)
        if known is None:
            return []
        if kind == "task_running" and isinstance(message, dict):
            known.messages.append(message)
            node = "tools" if message.get("type") == "tool" else "model"
            about = {"langgraph_node": node, "langgraph_checkpoint_ns": known.namespace, "task_id": task_id}
            return [
                _frame(event, "messages", known, [message, about]),
                _frame(event, "updates", known, {node: {"messages": [message]}}),
            ]
        if kind in _ENDS:
            del self._tasks[task_id]
            return [_frame(event, "values", known, {"messages": known.messages})]
        return []

    def _begin(self, told: Mapping[str, Any]) -> _Task:
        task_id = told["task_id"]
        above = self._tasks.get(str(told.get("parent_task_id")))
        namespace = f"tools:{task_id}" if above is None else f"{above.namespace}|tools:{task_id}"
        asked = {"type": "human", "content": told.get("description") or "", "id": f"{task_id}-asked"}
        return _Task(namespace, [asked])


def _frame(event: StreamEvent, mode: str, task: _Task, payload: Any) -> StreamEvent:
    return replace(event, kind=f"{mode}|{task.namespace}", data=to_json(payload))
