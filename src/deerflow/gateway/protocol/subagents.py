"""Presents sub-agents as subgraphs below the tool call that started them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deerflow.domain.task_events import TaskEvents, TaskState
from deerflow.gateway.protocol.events import Draft, Namespace
from deerflow.gateway.protocol.messages import Json, MessageStream, short_message
from deerflow.gateway.protocol.tools import ToolCalls

_ENDS = {"completed": "completed", "failed": "failed", "timed_out": "failed", "cancelled": "interrupted"}
"""The lifecycle event of each end."""


@dataclass(slots=True)
class _Task:
    state: TaskState
    namespace: Namespace
    graph_name: str
    messages: list[Any] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Ids of the tool calls that it made."""


class Subagents:
    """Translates the `task_…` events of one run into events of the sub-agents' namespaces."""

    def __init__(self, calls: ToolCalls, messages: MessageStream) -> None:
        self._calls = calls
        self._messages = messages
        self._own_calls = ToolCalls()
        self._events = TaskEvents()
        self._tasks: dict[str, _Task] = {}

    def events_for(self, event: Any) -> list[Draft]:
        """Return the events for a custom event; empty unless it is about a sub-agent."""
        change = self._events.apply(event)
        if change is None:
            return []
        state = change.task
        if change.kind in ("started", "resumed"):
            return self._start(state, event.get("messages") or ())
        task = self._tasks.get(state.task_id)
        if task is None:
            return []
        if change.kind == "message" and isinstance(change.message, Mapping):
            return self._step(task, change.message)
        if change.kind == "ended":
            del self._tasks[state.task_id]
            return _end(task, _ENDS[state.status], state.error)
        return []

    def close(self, end: str) -> list[Draft]:
        """Return the end events of the sub-agents that end with their run."""
        drafts: list[Draft] = []
        for task in reversed(self._tasks.values()):
            if task.state.is_asking:
                drafts += self._own_calls.wait(task.namespace, task.calls)
            drafts += _end(task, end, None)
        self._tasks.clear()
        return drafts

    def namespace_of(self, question: Any) -> Namespace | None:
        """Return the namespace of the sub-agent that raised an interrupt; None for the lead agent.

        Interrupts of nested sub-agents are raised through their parent.
        """
        task = self._tasks.get(str(question.get("task_id"))) if isinstance(question, Mapping) else None
        if task is None:
            return None
        below = (
            each.namespace
            for each in self._tasks.values()
            if each.state.is_asking and each.namespace[: len(task.namespace)] == task.namespace
        )
        return max((task.namespace, *below), key=len)

    def _start(self, state: TaskState, past: Sequence[Any]) -> list[Draft]:
        task_id = state.task_id
        if (known := self._tasks.get(task_id)) is not None:  # resumed after an interrupt
            return self._restore(known, past)
        above = self._tasks.get(state.parent_task_id or "")
        node_task_id = self._calls.task_of.get(task_id, f"task-{task_id}")
        namespace = (*(above.namespace if above else ()), f"tools:{node_task_id}")
        task = _Task(state, namespace, state.subagent_type or "subagent", [state.prompt_message])
        self._tasks[task_id] = task
        started: Json = {
            "event": "started",
            "namespace": namespace,
            "graph_name": task.graph_name,
            "trigger_call_id": node_task_id,
            "cause": {"type": "toolCall", "tool_call_id": task_id},
        }
        restored = self._restore(task, past)
        return [Draft("lifecycle", started, namespace), *(restored or [_values(task)])]

    def _restore(self, task: _Task, messages: Sequence[Any]) -> list[Draft]:
        """Restore a task's messages from an earlier run; return its values and its unfinished calls."""
        known = {message.get("id") for message in task.messages}
        past = [
            message for message in messages if isinstance(message, Mapping) and message.get("id") not in known
        ]
        if not past:
            return []
        for message in past:
            task.messages.append(short_message(message))
            if message.get("type") == "tool":
                self._own_calls.mark_finished(str(message.get("tool_call_id")))
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
            return [*ended, *self._messages.events_for(task.namespace, message)]
        return [*self._messages.events_for(task.namespace, message), *self._starts(task, message)]


def _end(task: _Task, end: str, error: Any) -> list[Draft]:
    data = {"event": end, "graph_name": task.graph_name}
    if end == "failed" and isinstance(error, str):
        data["error"] = error
    return [_values(task), Draft("lifecycle", data, task.namespace)]


def _values(task: _Task) -> Draft:
    return Draft("values", {"messages": list(task.messages)}, task.namespace)
