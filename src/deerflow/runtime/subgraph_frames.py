"""Converts sub-agent events to subgraph events, for readers of runs with `stream_subgraphs`.

A sub-agent is a separate graph, and its steps are in the log as `task_…` events. For each, this adds the
events that LangGraph streams for a subgraph inside a tool: `updates|tools:<task>` and the like.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from deerflow.domain import StreamEvent
from deerflow.runtime.serialization import to_json

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
