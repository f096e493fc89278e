"""Reads the sub-agent tasks of a run from its event log, during the run and after it."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from deerflow.domain import RunRecord
from deerflow.domain.task_events import TaskEvents, TaskState
from deerflow.storage import LogEntry, Storage
from deerflow.subagents import SubagentResult, SubagentStatus

TASK_EVENT = b'"type":"task_'


@dataclass(slots=True)
class TaskRow:
    """One task as clients list it."""

    state: TaskState
    steps: list[dict[str, Any]] = field(default_factory=list)

    def out(self, *, with_steps: bool = False) -> dict[str, Any]:
        """Return the row as JSON."""
        row = {name: getattr(self.state, name) for name in TaskState.__slots__ if name != "path"}
        return {**row, "steps": self.steps} if with_steps else row


async def tasks_of(storage: Storage, run: RunRecord, live: list[SubagentResult]) -> dict[str, TaskRow]:
    """Return a run's tasks by id, oldest first.

    Args:
        live: Results from the executor of this process; the log lags behind it.
    """
    events, steps = TaskEvents(), defaultdict[str, list[dict[str, Any]]](list)
    async for entry, body in storage.events.rendered(run, wants=_is_task_event):
        event = orjson.loads(body)
        at = datetime.fromtimestamp(entry.unix_ms / 1000, UTC).isoformat()
        change = events.apply(event, at=at)
        if change is not None and change.kind == "message":
            step = {"at": at, "index": event.get("message_index"), "message": change.message}
            steps[change.task.task_id].append(step)
    for result in live:
        _refresh(events.tasks.setdefault(result.task_id, TaskState(result.task_id)), result)
    if run.status.is_terminal:
        for task in events.tasks.values():  # tasks end with their run; one that asks resumes in the next
            if task.status in ("running", "pending") and not task.is_asking:
                task.status = str(SubagentStatus.CANCELLED)
    return {task_id: TaskRow(task, steps[task_id]) for task_id, task in events.tasks.items()}


def _refresh(row: TaskState, result: SubagentResult) -> None:
    row.description = result.description
    row.subagent_type = result.subagent_type
    row.status = str(result.status)
    row.model_name = result.model_name
    row.parent_task_id = result.parent_task_id
    row.background = result.is_background
    row.is_asking = result.question is not None
    if result.status.is_terminal:
        row.result, row.error = result.result, result.error
        row.usage = dict(result.token_usage) or row.usage


def _is_task_event(entry: LogEntry) -> bool:
    return entry.kind == "custom" and TASK_EVENT in entry.body
