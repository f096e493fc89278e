"""Routes for sub-agents: the tasks of a run, and runs that begin with a team.

A team's run is an ordinary run: it is streamed, cancelled, resumed and listed through the routes of runs.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord
from deerflow.domain.task_events import TaskEvents, TaskState
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, owned_run
from deerflow.gateway.openapi import answers
from deerflow.gateway.routers.runs import CurrentCaller, create_run, stream_run
from deerflow.gateway.run_request import RunCreate
from deerflow.storage import LogEntry, Storage
from deerflow.subagents import SubagentResult, SubagentStatus
from deerflow.subagents.teams import TEAM_REQUEST, RoleRegistry, TeamPlan, TeamRequest
from deerflow.subagents.teams.plan import checked_plan

tasks_router = APIRouter(tags=["tasks"])


@tasks_router.get("/threads/{thread_id}/runs/{run_id}/tasks", **answers("list[SubagentTask]", 404))
async def list_run_tasks(
    thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp, *, steps: bool = False
) -> Response:
    """List the tasks that a run gave to sub-agents, oldest first.

    `steps` adds the messages of each. Tasks of ended runs come from the run's log.
    """
    run = await owned_run(deerflow, thread_id, run_id, user)
    rows = await tasks_of(deerflow.storage, run, deerflow.subagents.list(run_id))
    return json_response([row.out(with_steps=steps) for row in rows.values()])


@tasks_router.get("/threads/{thread_id}/runs/{run_id}/tasks/{task_id}", **answers("SubagentTask", 404))
async def get_run_task(
    thread_id: ThreadPath, run_id: str, task_id: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Return one task of a sub-agent with its messages so far."""
    run = await owned_run(deerflow, thread_id, run_id, user)
    rows = await tasks_of(deerflow.storage, run, deerflow.subagents.list(run_id))
    if task_id not in rows:
        raise NotFoundError("task", task_id, known=rows)
    return json_response(rows[task_id].out(with_steps=True))


@tasks_router.post(
    "/threads/{thread_id}/runs/{run_id}/tasks/{task_id}/cancel", **answers(None, 404, 409, status=202)
)
async def cancel_run_task(
    thread_id: ThreadPath, run_id: str, task_id: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Stop one task of a sub-agent; the run goes on with what the task has found.

    A task that has ended, or whose run waits for an answer, answers 409.
    """
    run = await owned_run(deerflow, thread_id, run_id, user)
    if deerflow.subagents.request_cancel(run_id, task_id):
        return Response(status_code=202)
    rows = await tasks_of(deerflow.storage, run, deerflow.subagents.list(run_id))
    if task_id not in rows:
        raise NotFoundError("task", task_id, known=rows)
    if rows[task_id].state.is_asking and run.status.is_terminal:
        raise ConflictError(f"task {task_id} waits for an answer to what it asked; reject that instead")
    if rows[task_id].state.status in ("running", "pending") and not run.status.is_terminal:
        await deerflow.task_cancel_requests.request(run_id, task_id)  # for the process that drives the run
        return Response(status_code=202)
    raise ConflictError(f"task {task_id} is not cancellable: it is {rows[task_id].state.status}")


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


teams_router = APIRouter(tags=["teams"])


class TeamRunCreate(RunCreate):
    """A run that begins with a team: the fields of a run, and `team`."""

    team: TeamRequest

    def as_run(self) -> RunCreate:
        """Return the body of the run: the goal becomes its message, the rest is in its context."""
        goal = {"messages": [{"type": "human", "content": self.team.goal}]}
        team = self.team.model_dump(exclude_defaults=True)
        context = {**(self.context or {}), "subagent_enabled": True, TEAM_REQUEST: team}
        return self.model_copy(update={"input": self.input or goal, "context": context})


@teams_router.get("/teams/roles", **answers("TeamRoles"))
async def list_team_roles(deerflow: CurrentApp) -> Response:
    """List the roles that members of a team may have."""
    roles = [
        {"name": role.name, "description": role.description, "stage": role.stage} for role in _roles(deerflow)
    ]
    return json_response({"roles": roles})


@teams_router.post("/threads/{thread_id}/teams/runs", **answers("Run", 400, 404, 409))
async def create_team_run(thread_id: ThreadPath, body: TeamRunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a thread that begins with a team of sub-agents, in the background.

    The body is that of a run with the field `team`. Unknown roles and plans that cannot work answer 400,
    `teams.enabled: false` 409.
    """
    _check_team(caller.deerflow, body.team)
    return await create_run(thread_id, body.as_run(), caller)


@teams_router.post("/threads/{thread_id}/teams/runs/stream", **answers("events", 400, 404, 409))
async def stream_team_run(thread_id: ThreadPath, body: TeamRunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a thread that begins with a team of sub-agents, and stream its events until it ends.

    The body is that of a run with the field `team`. Unknown roles and plans that cannot work answer 400,
    `teams.enabled: false` 409.
    """
    _check_team(caller.deerflow, body.team)
    return await stream_run(thread_id, body.as_run(), caller)


def _check_team(deerflow: DeerFlow, team: TeamRequest) -> None:
    """Reject a team that could only fail, before anything is stored."""
    settings = deerflow.settings.teams
    if not settings.enabled:
        raise ConflictError("teams are switched off here; set teams.enabled to true")
    try:
        _roles(deerflow).among(team.members)
        if team.steps:
            plan = TeamPlan(steps=team.steps)
            checked_plan(plan, _roles(deerflow), members=team.members, max_steps=settings.max_steps)
    except NotFoundError as error:  # a role in the body, not the resource of the URL
        raise InvalidInputError(str(error)) from error


def _roles(deerflow: DeerFlow) -> RoleRegistry:
    return RoleRegistry(deerflow.settings.teams, deerflow.settings.subagents)
