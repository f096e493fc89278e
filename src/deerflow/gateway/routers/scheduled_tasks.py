"""Routes for scheduled tasks of DeerFlow's own page: crons with a title, a prompt and a list of runs."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import LEAD_AGENT, RunStatus, new_id
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.gateway.background import start_run
from deerflow.gateway.deps import ThreadId, ThreadPath, json_response, owned_thread
from deerflow.gateway.openapi import answers
from deerflow.gateway.routers.crons import CurrentSchedules, Schedules
from deerflow.runtime.json_views import stamp
from deerflow.scheduler import CronJob, Occurrence, check_schedule
from deerflow.scheduler.cron import zone_of

router = APIRouter(tags=["scheduled tasks"])

ContextMode = Literal["fresh_thread_per_run", "reuse_thread"]
Title = Annotated[str, Field(min_length=1, max_length=256)]
Prompt = Annotated[str, Field(min_length=1, max_length=100_000)]
Zone = Annotated[str, Field(max_length=128)]


class TaskCreate(BaseModel):
    """A new task."""

    thread_id: ThreadId | None = None
    context_mode: ContextMode = "fresh_thread_per_run"
    title: Title
    prompt: Prompt
    schedule_type: Literal["once", "cron"]
    schedule_spec: dict[str, Any]
    timezone: Zone = "UTC"


class TaskUpdate(BaseModel):
    """What is to change about a task; what is absent stays."""

    context_mode: ContextMode | None = None
    thread_id: ThreadId | None = None
    title: Title | None = None
    prompt: Prompt | None = None
    schedule_spec: dict[str, Any] | None = None
    timezone: Zone | None = None


@router.get("/scheduled-tasks", **answers("list[ScheduledTask]"))
async def list_scheduled_tasks(schedules: CurrentSchedules) -> Response:
    """List the user's scheduled tasks, newest first."""
    return json_response([await task_out(schedules, task) for task in await _tasks(schedules)])


@router.get("/threads/{thread_id}/scheduled-tasks", **answers("list[ScheduledTask]", 404))
async def list_scheduled_tasks_of_thread(thread_id: ThreadPath, schedules: CurrentSchedules) -> Response:
    """List the scheduled tasks that run in a thread, newest first."""
    await owned_thread(schedules.deerflow, thread_id, schedules.user)
    mine = [task for task in await _tasks(schedules) if task.thread_id == thread_id]
    return json_response([await task_out(schedules, task) for task in mine])


@router.post("/scheduled-tasks", **answers("ScheduledTask", 404, 409))
async def create_scheduled_task(body: TaskCreate, schedules: CurrentSchedules) -> Response:
    """Create a scheduled task, which runs once or at the times of a schedule.

    `schedule_spec` is `{"cron": "0 9 * * *"}` or `{"run_at": "2027-01-31T09:00"}`; times are in `timezone`.
    Answers 409 while `scheduler.enabled` is false in the settings.
    """
    schedules.require_enabled()
    now = datetime.now(UTC)
    task = CronJob(
        id=new_id(),
        user_id=schedules.user,
        schedule="",
        payload=_payload(body.prompt),
        created_at=now,
        updated_at=now,
        since=now,
        assistant_id=LEAD_AGENT,
        thread_id=await _thread(schedules, body.context_mode, body.thread_id),
        on_run_completed="keep",
        title=body.title,
    )
    is_once = body.schedule_type == "once"
    task = _with_schedule(schedules, task, body.schedule_spec, body.timezone, is_once=is_once)
    await schedules.create(task)
    return json_response(await task_out(schedules, task))


@router.get("/scheduled-tasks/{task_id}", **answers("ScheduledTask", 404))
async def get_scheduled_task(task_id: str, schedules: CurrentSchedules) -> Response:
    """Return one scheduled task."""
    return json_response(await task_out(schedules, await _find(schedules, task_id)))


@router.patch("/scheduled-tasks/{task_id}", **answers("ScheduledTask", 404))
async def update_scheduled_task(task_id: str, body: TaskUpdate, schedules: CurrentSchedules) -> Response:
    """Change a scheduled task; fields that are absent stay as they are."""
    task = await _find(schedules, task_id)
    if body.context_mode is not None or body.thread_id is not None:
        mode = body.context_mode or ("reuse_thread" if body.thread_id or task.thread_id else None)
        thread_id = body.thread_id or (task.thread_id if mode == "reuse_thread" else None)
        task = replace(task, thread_id=await _thread(schedules, mode or "fresh_thread_per_run", thread_id))
    if body.prompt is not None:
        task = replace(task, payload=_payload(body.prompt))
    if body.schedule_spec is not None or body.timezone is not None:
        spec = body.schedule_spec or spec_of(task)
        is_once = task.once_at is not None
        task = _with_schedule(schedules, task, spec, body.timezone or task.timezone or "UTC", is_once=is_once)
        task = replace(task, since=datetime.now(UTC))
    return await _stored(schedules, replace(task, title=body.title or task.title))


@router.post("/scheduled-tasks/{task_id}/pause", **answers("ScheduledTask", 404))
async def pause_scheduled_task(task_id: str, schedules: CurrentSchedules) -> Response:
    """Pause a scheduled task: it starts no runs until it is resumed."""
    return await _stored(schedules, replace(await _find(schedules, task_id), enabled=False))


@router.post("/scheduled-tasks/{task_id}/resume", **answers("ScheduledTask", 404))
async def resume_scheduled_task(task_id: str, schedules: CurrentSchedules) -> Response:
    """Resume a paused scheduled task; times that passed meanwhile are not made up for."""
    task = await _find(schedules, task_id)
    since = task.since if task.enabled else datetime.now(UTC)
    return await _stored(schedules, replace(task, enabled=True, since=since))


@router.post("/scheduled-tasks/{task_id}/trigger", **answers("Triggered", 404, 409))
async def trigger_scheduled_task(task_id: str, schedules: CurrentSchedules) -> Response:
    """Start a run of a scheduled task now; its schedule stays as it is."""
    task = await _find(schedules, task_id)
    now = datetime.now(UTC)
    run = await start_run(schedules.deerflow, task, now)
    if run is None:
        raise NotFoundError("thread", task.thread_id or "")
    await schedules.crons.add_occurrence(
        Occurrence(
            id=str(uuid.uuid4()),
            cron_id=task.id,
            scheduled_for=now,
            created_at=now,
            trigger="manual",
            run_id=run.id,
            thread_id=run.thread_id,
        )
    )
    return json_response({"id": task.id, "triggered": True, "thread_id": run.thread_id})


@router.delete("/scheduled-tasks/{task_id}", **answers("DeletedTask", 404))
async def delete_scheduled_task(task_id: str, schedules: CurrentSchedules) -> Response:
    """Delete a scheduled task; threads of its runs stay."""
    await _find(schedules, task_id)
    await schedules.crons.delete(task_id)
    return json_response({"id": task_id, "deleted": True})


@router.get("/scheduled-tasks/{task_id}/runs", **answers("list[ScheduledRun]", 404))
async def list_scheduled_task_runs(
    task_id: str,
    schedules: CurrentSchedules,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """List what came of a scheduled task at each of its times, newest first."""
    await _find(schedules, task_id)
    page = (await schedules.crons.occurrences(task_id))[offset : offset + limit]
    return json_response([await occurrence_out(schedules.deerflow, occurrence) for occurrence in page])


async def _tasks(schedules: Schedules) -> list[CronJob]:
    found = [cron for cron in await schedules.crons.of_user(schedules.user) if cron.title is not None]
    return sorted(found, key=lambda task: task.created_at, reverse=True)


async def _find(schedules: Schedules, task_id: str) -> CronJob:
    try:
        task = await schedules.crons.get(task_id, schedules.user)
    except NotFoundError as error:
        raise NotFoundError("scheduled task", task_id) from error
    if task.title is None:
        raise NotFoundError("scheduled task", task_id)
    return task


async def _stored(schedules: Schedules, task: CronJob) -> Response:
    task = replace(task, updated_at=datetime.now(UTC))
    await schedules.put(task)
    return json_response(await task_out(schedules, task))


async def _thread(schedules: Schedules, mode: ContextMode, thread_id: str | None) -> str | None:
    if mode == "fresh_thread_per_run":
        return None
    if thread_id is None:
        raise HTTPException(422, "context_mode 'reuse_thread' needs a thread_id")
    return (await owned_thread(schedules.deerflow, thread_id, schedules.user)).id


def _with_schedule(
    schedules: Schedules, task: CronJob, spec: dict[str, Any], timezone: str, *, is_once: bool
) -> CronJob:
    """Return a task with its schedule; 422 if the schedule is invalid or too soon."""
    try:
        if not is_once:
            schedule = spec.get("cron")
            if not isinstance(schedule, str):
                raise InvalidInputError("schedule_spec must be an object like {'cron': '0 9 * * *'}")
            check_schedule(schedule, timezone, now=datetime.now(UTC))
            return replace(task, schedule=schedule, timezone=timezone)
        run_at = _parse_run_at(spec.get("run_at"), timezone)
    except InvalidInputError as error:
        raise HTTPException(422, str(error)) from error
    least = schedules.deerflow.settings.scheduler.min_once_delay_seconds
    if run_at != task.once_at and run_at < datetime.now(UTC) + timedelta(seconds=least):
        raise HTTPException(422, f"run_at must be at least {least} seconds from now")
    return replace(task, once_at=run_at, timezone=timezone)


def _parse_run_at(text: Any, timezone: str) -> datetime:
    """Parse a time; one without a zone is in the task's time zone."""
    zone = zone_of(timezone)
    try:
        run_at = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "schedule_spec must be an object like {'run_at': '2027-01-31T09:00'}"
        ) from error
    return (run_at if run_at.tzinfo else run_at.replace(tzinfo=zone)).astimezone(UTC)


def _payload(prompt: str) -> dict[str, Any]:
    message = {"type": "human", "content": [{"type": "text", "text": prompt}]}
    return {"input": {"messages": [message]}}


_RUN_STATUS = {
    RunStatus.PENDING: "queued",
    RunStatus.RUNNING: "running",
    RunStatus.SUCCESS: "success",
    RunStatus.INTERRUPTED: "interrupted",
}


async def task_out(schedules: Schedules, task: CronJob) -> dict[str, Any]:
    """Return a scheduled task as JSON."""
    occurrences = await schedules.crons.occurrences(task.id)
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
        "status": await _status(schedules.deerflow, task, occurrences),
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
