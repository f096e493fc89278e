"""The state of a run's sub-agent tasks, computed from its `task_…` events.

Everything that shows tasks (lists, subgraph streams, the terminal) folds the events with this one class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

TASK_ENDS = {f"task_{status}": status for status in ("completed", "failed", "cancelled", "timed_out")}
"""The status that each end event sets."""

TaskChangeKind = Literal["started", "resumed", "message", "asking", "ended"]


@dataclass(slots=True)
class TaskState:
    """One task, as its events so far describe it."""

    task_id: str
    description: str = ""
    subagent_type: str | None = None
    status: str = "running"
    model_name: str | None = None
    parent_task_id: str | None = None
    background: bool = False
    is_asking: bool = False
    """The task waits for a user's answer, also if its run has stopped for that."""
    started_at: str | None = None
    completed_at: str | None = None
    message_count: int = 0
    result: str | None = None
    error: str | None = None
    usage: dict[str, int] | None = None
    path: tuple[str, ...] = ()
    """Ids of the tasks above it, outermost first, and its own; empty before it has started."""

    @property
    def prompt_message(self) -> dict[str, Any]:
        """The first message of its conversation; clients match it with the call by the description."""
        return {"type": "human", "content": self.description, "id": f"{self.task_id}-asked"}


@dataclass(frozen=True, slots=True)
class TaskChange:
    """What an event changed."""

    kind: TaskChangeKind
    task: TaskState
    message: Any = None
    """The new message of a `message` change."""


class TaskEvents:
    """The tasks of one run by id, oldest first, folded from its events."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskState] = {}

    def apply(self, event: Any, *, at: str | None = None) -> TaskChange | None:
        """Apply a custom event; return None for events about anything but a task that has started.

        A task can end without a start, when it is cancelled in the queue: it is then in `tasks` only.

        Args:
            at: Time of the event, for `started_at` and `completed_at`.
        """
        if not isinstance(event, Mapping) or not isinstance(event.get("task_id"), str):
            return None
        kind = event.get("type")
        if kind not in ("task_started", "task_running", "task_asking", *TASK_ENDS):
            return None
        task = self.tasks.setdefault(event["task_id"], TaskState(event["task_id"]))
        task.model_name = event.get("model_name") or task.model_name
        task.parent_task_id = event.get("parent_task_id") or task.parent_task_id
        task.usage = event.get("usage") or task.usage
        if kind == "task_started":
            return self._start(task, event, at)
        change: TaskChange | None = None
        if kind == "task_asking":
            task.is_asking = True
            change = TaskChange("asking", task)
        elif kind == "task_running":
            task.message_count = event.get("total_messages") or task.message_count
            change = TaskChange("message", task, event.get("message"))
        else:
            task.status, task.completed_at, task.is_asking = TASK_ENDS[str(kind)], at, False
            task.result, task.error = event.get("result"), event.get("error")
            change = TaskChange("ended", task)
        return change if task.path else None

    def _start(self, task: TaskState, event: Mapping[str, Any], at: str | None) -> TaskChange:
        is_resumed = bool(task.path) and task.status == "running"
        task.description = event.get("description") or task.description
        task.subagent_type = event.get("subagent_type") or task.subagent_type
        task.background = bool(event.get("background"))
        task.started_at = task.started_at or at
        task.status, task.is_asking = "running", False
        parent = self.tasks.get(task.parent_task_id or "")
        task.path = (*(parent.path if parent is not None else ()), task.task_id)
        return TaskChange("resumed" if is_resumed else "started", task)
