"""Reads the sub-agent tasks of a run from its event log, during the run and after it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from deerflow.domain import RunRecord
from deerflow.storage import LogEntry, Storage
from deerflow.subagents import SubagentResult, SubagentStatus

TASK_EVENT = b'"type":"task_'
ENDS = {f"task_{status}": str(status) for status in SubagentStatus if status.is_terminal}


@dataclass(slots=True)
class TaskRow:
    """One task as clients list it."""

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
    steps: list[dict[str, Any]] = field(default_factory=list)

    def take(self, event: dict[str, Any], at: str) -> None:
        """Apply one event of this task."""
        self.model_name = event.get("model_name") or self.model_name
        self.parent_task_id = event.get("parent_task_id") or self.parent_task_id
        self.usage = event.get("usage") or self.usage
        match event["type"]:
            case "task_started":
                self.description = event.get("description") or self.description
                self.subagent_type = event.get("subagent_type") or self.subagent_type
                self.background = bool(event.get("background"))
                self.started_at = self.started_at or at
                self.status, self.is_asking = "running", False
            case "task_asking":
                self.is_asking = True
            case "task_running":
                self.message_count = event.get("total_messages") or self.message_count
                self.steps.append(
                    {"at": at, "index": event.get("message_index"), "message": event.get("message")}
                )
            case kind if kind in ENDS:
                self.status, self.completed_at, self.is_asking = ENDS[kind], at, False
                self.result, self.error = event.get("result"), event.get("error")

    def out(self, *, with_steps: bool = False) -> dict[str, Any]:
        """Return the row as JSON."""
        row = {name: getattr(self, name) for name in self.__slots__ if name != "steps"}
        return {**row, "steps": self.steps} if with_steps else row


async def tasks_of(storage: Storage, run: RunRecord, live: list[SubagentResult]) -> dict[str, TaskRow]:
    """Return a run's tasks by id, oldest first.

    Args:
        live: Results from the executor of this process; the log lags behind it.
    """
    rows: dict[str, TaskRow] = {}
    async for entry, body in storage.events.rendered(run, wants=_is_task_event):
        event = orjson.loads(body)
        if isinstance(event, dict) and isinstance(event.get("task_id"), str):
            at = datetime.fromtimestamp(entry.unix_ms / 1000, UTC).isoformat()
            rows.setdefault(event["task_id"], TaskRow(event["task_id"])).take(event, at)
    for result in live:
        _refresh(rows.setdefault(result.task_id, TaskRow(result.task_id)), result)
    if run.status.is_terminal:
        for row in rows.values():  # tasks end with their run; one that asks resumes in the next
            if row.status in ("running", "pending") and not row.is_asking:
                row.status = str(SubagentStatus.CANCELLED)
    return rows


def _refresh(row: TaskRow, result: SubagentResult) -> None:
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
