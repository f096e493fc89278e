"""JSON views of scheduled tasks and their runs."""

from datetime import UTC, datetime
from typing import Any

from deerflow.app import DeerFlow
from deerflow.domain import RunStatus
from deerflow.errors import NotFoundError
from deerflow.runtime.json_views import stamp
from deerflow.scheduler import CronJob, CronStore, Occurrence

_RUN_STATUS = {
    RunStatus.PENDING: "queued",
    RunStatus.RUNNING: "running",
    RunStatus.SUCCESS: "success",
    RunStatus.INTERRUPTED: "interrupted",
}


async def task_out(deerflow: DeerFlow, crons: CronStore, task: CronJob) -> dict[str, Any]:
    """Return a scheduled task as JSON."""
    occurrences = await crons.occurrences(task.id)
    last = occurrences[0] if occurrences else None
    next_run = task.next_after(datetime.now(UTC))
    return {
        "id": task.id,
        "thread_id": task.thread_id,
        "context_mode": "reuse_thread" if task.thread_id else "fresh_thread_per_run",
        "assistant_id": task.assistant_id,
        "title": task.title,
        "prompt": task.payload["input"]["messages"][0]["content"][0]["text"],
        "schedule_type": "once" if task.once_at else "cron",
        "schedule_spec": spec_of(task),
        "timezone": task.timezone,
        "status": await _status(deerflow, task, occurrences),
        "next_run_at": stamp(next_run) if next_run else None,
        "last_run_at": stamp(last.created_at) if last else None,
        "last_run_id": last.run_id if last else None,
        "last_thread_id": last.thread_id if last else None,
        "last_error": last.error if last else None,
        "run_count": sum(occurrence.run_id is not None for occurrence in occurrences),
        "created_at": stamp(task.created_at),
        "updated_at": stamp(task.updated_at),
    }


async def _status(deerflow: DeerFlow, task: CronJob, occurrences: list[Occurrence]) -> str:
    if not task.enabled:
        return "paused"
    done = next((one for one in occurrences if one.trigger == "scheduled"), None)
    if task.once_at is None or done is None or done.scheduled_for != task.once_at:
        return "enabled"
    match (await occurrence_out(deerflow, done))["status"]:
        case "queued" | "running":
            return "running"
        case "success":
            return "completed"
        case "interrupted":
            return "cancelled"
    return "failed"


async def occurrence_out(deerflow: DeerFlow, occurrence: Occurrence) -> dict[str, Any]:
    """Return an occurrence of a scheduled task as JSON."""
    run = None
    if occurrence.run_id is not None:
        try:
            run = await deerflow.runs.get(occurrence.run_id)
        except NotFoundError:
            run = None  # the run was deleted since, but had started
    if run is not None:
        status = _RUN_STATUS.get(run.status, "failed")
    elif occurrence.run_id is not None:
        status = "success"
    else:
        status = "skipped" if occurrence.is_skipped else "failed"
    return {
        "id": occurrence.id,
        "task_id": occurrence.cron_id,
        "thread_id": occurrence.thread_id,
        "run_id": occurrence.run_id,
        "scheduled_for": stamp(occurrence.scheduled_for),
        "trigger": occurrence.trigger,
        "status": status,
        "error": occurrence.error or (run.error if run else None),
        "started_at": stamp(run.created_at) if run else None,
        "finished_at": stamp(run.updated_at) if run and run.status.is_terminal else None,
        "created_at": stamp(occurrence.created_at),
    }


def spec_of(task: CronJob) -> dict[str, Any]:
    """Return the schedule of a task as its creator wrote it."""
    return {"run_at": stamp(task.once_at)} if task.once_at else {"cron": task.schedule}
