"""Routes for the sub-agent tasks of a run: list, read, cancel."""

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.errors import ConflictError, NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, owned_run
from deerflow.gateway.openapi import answers
from deerflow.gateway.subagent_task_views import tasks_of

router = APIRouter(tags=["tasks"])


@router.get(
    "/threads/{thread_id}/runs/{run_id}/tasks",
    operation_id="list_run_tasks",
    **answers("list[SubagentTask]", 404),
)
async def list_tasks(
    thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp, *, steps: bool = False
) -> Response:
    """List the tasks that a run gave to sub-agents, oldest first.

    `steps` adds the messages of each. Tasks of ended runs come from the run's log.
    """
    run = await owned_run(deerflow, thread_id, run_id, user)
    rows = await tasks_of(deerflow.storage, run, deerflow.subagents.list(run_id))
    return json_response([row.out(with_steps=steps) for row in rows.values()])


@router.get(
    "/threads/{thread_id}/runs/{run_id}/tasks/{task_id}",
    operation_id="get_run_task",
    **answers("SubagentTask", 404),
)
async def get_task(
    thread_id: ThreadPath, run_id: str, task_id: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Return one task of a sub-agent with its messages so far."""
    run = await owned_run(deerflow, thread_id, run_id, user)
    rows = await tasks_of(deerflow.storage, run, deerflow.subagents.list(run_id))
    if task_id not in rows:
        raise NotFoundError("task", task_id, known=rows)
    return json_response(rows[task_id].out(with_steps=True))


@router.post(
    "/threads/{thread_id}/runs/{run_id}/tasks/{task_id}/cancel",
    operation_id="cancel_run_task",
    **answers(None, 404, 409, status=202),
)
async def cancel_task(
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
