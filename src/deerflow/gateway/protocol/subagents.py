"""Presents sub-agents as subgraphs below the tool call that started them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deerflow.gateway.protocol.events import Draft, Namespace
from deerflow.gateway.protocol.messages import MessageStream
from deerflow.gateway.protocol.shapes import Json, short_message
from deerflow.gateway.protocol.tools import ToolCalls

_ENDS = {"task_completed": "completed", "task_failed": "failed", "task_timed_out": "failed"}
_CANCELLED = "task_cancelled"


@dataclass(slots=True)
class _Task:
    namespace: Namespace
    graph_name: str
    messages: list[Any] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Ids of the tool calls that it made."""
    is_asking: bool = False


class Subagents:
    """Translates the `task_…` events of one run into events of the sub-agents' namespaces."""

    def __init__(self, calls: ToolCalls, messages: MessageStream) -> None:
        self._calls = calls
        self._messages = messages
        self._own_calls = ToolCalls()
        self._tasks: dict[str, _Task] = {}

    def take(self, event: Any) -> list[Draft]:
        """Return the events for a custom event; empty unless it is about a sub-agent."""
        if not isinstance(event, Mapping) or not isinstance(event.get("task_id"), str):
            return []
        kind = event.get("type")
        if kind == "task_started":
            return self._start(event)
        task = self._tasks.get(event["task_id"])
        if task is None:
            return []
        if kind == "task_asking":
            task.is_asking = True
        if kind == "task_running" and isinstance(event.get("message"), Mapping):
            return self._step(task, event["message"])
        if kind in _ENDS or kind == _CANCELLED:
            del self._tasks[event["task_id"]]
            return _end(task, _ENDS.get(str(kind), "interrupted"), event.get("error"))
        return []

    def close(self, end: str) -> list[Draft]:
        """Return the end events of the sub-agents that end with their run."""
        drafts: list[Draft] = []
        for task in reversed(self._tasks.values()):
            if task.is_asking:
                drafts += self._own_calls.wait(task.namespace, task.calls)
            drafts += _end(task, end, None)
        self._tasks.clear()
        return drafts

    def place_of(self, question: Any) -> Namespace | None:
        """Return the namespace of the sub-agent that raised an interrupt; None for the lead agent.

        Interrupts of nested sub-agents are raised through their parent.
        """
        task = self._tasks.get(str(question.get("task_id"))) if isinstance(question, Mapping) else None
        if task is None:
            return None
        below = (
            each.namespace
            for each in self._tasks.values()
            if each.is_asking and each.namespace[: len(task.namespace)] == task.namespace
        )
        return max((task.namespace, *below), key=len)

    def _start(self, event: Mapping[str, Any]) -> list[Draft]:
        task_id = event["task_id"]
        if (known := self._tasks.get(task_id)) is not None:  # resumed after an interrupt
            known.is_asking = False
            return self._recall(known, event)
        above = self._tasks.get(str(event.get("parent_task_id")))
        mark = self._calls.task_of.get(task_id, f"task-{task_id}")
        namespace = (*(above.namespace if above else ()), f"tools:{mark}")
        # Clients match the card of a call by this message: it repeats the call's description.
        asked = {"type": "human", "content": event.get("description") or "", "id": f"{task_id}-asked"}
        task = _Task(namespace, str(event.get("subagent_type") or "subagent"), [asked])
        self._tasks[task_id] = task
        started: Json = {
            "event": "started",
            "namespace": namespace,
            "graph_name": task.graph_name,
            "trigger_call_id": mark,
            "cause": {"type": "toolCall", "tool_call_id": task_id},
        }
        recalled = self._recall(task, event)
        return [Draft("lifecycle", started, namespace), *(recalled or [_values(task)])]

    def _recall(self, task: _Task, event: Mapping[str, Any]) -> list[Draft]:
        """Restore a task's messages from an earlier run; return its values and its unfinished calls."""
        known = {message.get("id") for message in task.messages}
        past = [
            message
            for message in event.get("messages") or ()
            if isinstance(message, Mapping) and message.get("id") not in known
        ]
        if not past:
            return []
        for message in past:
            task.messages.append(short_message(message))
            if message.get("type") == "tool":
                self._own_calls.know(str(message.get("tool_call_id")))
        drafts = [_values(task)]
        for message in past:
            drafts += self._starts(task, message)
        return drafts

    def _starts(self, task: _Task, message: Mapping[str, Any]) -> list[Draft]:
        drafts: list[Draft] = []
        for call in message.get("tool_calls") or []:
            task.calls.append(str(call.get("id")))
            drafts += self._own_calls.start(task.namespace, call)
        return drafts

    def _step(self, task: _Task, message: Mapping[str, Any]) -> list[Draft]:
        task.messages.append(short_message(message))
        if message.get("type") == "tool":
            ended = self._own_calls.end(task.namespace, message)
            return [*ended, *self._messages.take(task.namespace, message)]
        return [*self._messages.take(task.namespace, message), *self._starts(task, message)]


def _end(task: _Task, end: str, error: Any) -> list[Draft]:
    data = {"event": end, "graph_name": task.graph_name}
    if end == "failed" and isinstance(error, str):
        data["error"] = error
    return [_values(task), Draft("lifecycle", data, task.namespace)]


def _values(task: _Task) -> Draft:
    return Draft("values", {"messages": list(task.messages)}, task.namespace)
