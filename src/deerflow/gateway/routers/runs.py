"""Runs over HTTP: start, stream, wait, join, cancel."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import (
    CancelAction,
    DisconnectMode,
    RunRecord,
    RunStatus,
    new_id,
    seq_of,
)
from deerflow.errors import ConflictError, NotFoundError
from deerflow.gateway.deps import CurrentUser, House, ThreadPath, json_response, owned_run, owned_thread
from deerflow.gateway.sse import EventStream
from deerflow.gateway.wire import RunCreate
from deerflow.runtime import visible_values
from deerflow.runtime.inputs import check_thread_id
from deerflow.runtime.shapes import run_out

router = APIRouter(tags=["runs"])

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
ModeQuery = Annotated[list[str] | None, Query()]


@router.post("/threads/{thread_id}/runs")
async def create_run(thread_id: ThreadPath, body: RunCreate, user: CurrentUser, house: House) -> Response:
    """Start a run in the background."""
    run = await _admit(house, thread_id, body, user)
    return json_response(run_out(run), headers=_location(run))


@router.post("/threads/{thread_id}/runs/stream")
async def stream_run(thread_id: ThreadPath, body: RunCreate, user: CurrentUser, house: House) -> Response:
    """Start a run and stream its events until it ends."""
    run = await _admit(house, thread_id, body, user)
    return _event_stream(house, run, cancel_on_leave=run.request.on_disconnect is DisconnectMode.CANCEL)


@router.post("/threads/{thread_id}/runs/wait")
async def wait_run(
    thread_id: ThreadPath, body: RunCreate, user: CurrentUser, house: House, request: Request
) -> Response:
    """Start a run, wait for its end and return the thread's final values."""
    run = await _admit(house, thread_id, body, user)
    return await _wait(house, run, request)


@router.post("/runs/stream")
async def stream_stateless(body: RunCreate, user: CurrentUser, house: House) -> Response:
    """Start a run in a thread that it names, or in a new one, and stream it."""
    return await stream_run(_stateless_thread(body), body, user, house)


@router.post("/runs/wait")
async def wait_stateless(body: RunCreate, user: CurrentUser, house: House, request: Request) -> Response:
    """Start a run in a thread that it names, or in a new one, and wait for it."""
    return await wait_run(_stateless_thread(body), body, user, house, request)


@router.post("/runs")
async def create_stateless(body: RunCreate, user: CurrentUser, house: House) -> Response:
    """Start a run in the background, in a thread that it names or in a new one."""
    return await create_run(_stateless_thread(body), body, user, house)


@router.get("/threads/{thread_id}/runs")
async def list_runs(
    thread_id: ThreadPath,
    user: CurrentUser,
    house: House,
    status: RunStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """List a thread's runs, newest first."""
    await owned_thread(house, thread_id, user)
    runs = await house.runs.of_thread(thread_id, status=status, limit=limit, offset=offset)
    return json_response([run_out(run) for run in runs])


@router.get("/threads/{thread_id}/runs/{run_id}")
async def get_run(thread_id: ThreadPath, run_id: str, user: CurrentUser, house: House) -> Response:
    """Return one run."""
    return json_response(run_out(await owned_run(house, thread_id, run_id, user)))


@router.delete("/threads/{thread_id}/runs/{run_id}")
async def delete_run(thread_id: ThreadPath, run_id: str, user: CurrentUser, house: House) -> Response:
    """Delete a run that has ended."""
    await owned_run(house, thread_id, run_id, user)
    await house.runs.delete(run_id, thread_id)
    return Response(status_code=204)


@router.post("/threads/{thread_id}/runs/{run_id}/cancel")
async def cancel_run(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    house: House,
    wait: bool = False,
    action: CancelAction = CancelAction.INTERRUPT,
) -> Response:
    """Stop a run; with `wait` the answer comes when it has stopped."""
    await owned_run(house, thread_id, run_id, user)
    await house.runs.cancel(run_id, action=action, wait=wait)
    return Response(status_code=204 if wait else 202)


@router.get("/threads/{thread_id}/runs/{run_id}/join")
async def join_run(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    house: House,
    request: Request,
    last_event_id: LastEventId = None,
) -> Response:
    """Wait for a run's end and return the final values; a reader that asks for events gets them."""
    run = await owned_run(house, thread_id, run_id, user)
    if "text/event-stream" in request.headers.get("accept", ""):
        return _event_stream(house, run, after=last_event_id)
    await house.runs.wait(run_id)
    return await _final_values(house, run_id)


@router.get("/threads/{thread_id}/runs/{run_id}/stream")
@router.post("/threads/{thread_id}/runs/{run_id}/stream")
async def join_stream(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    house: House,
    last_event_id: LastEventId = None,
    stream_mode: ModeQuery = None,
    cancel_on_disconnect: bool = False,
    action: CancelAction | None = None,
    wait: bool = False,
) -> Response:
    """Follow a run from anywhere in its log; with `action` it is stopped first."""
    run = await owned_run(house, thread_id, run_id, user)
    if action is not None and not run.status.is_terminal:
        await house.runs.cancel(run_id, action=action, wait=wait)
    modes = tuple(mode for part in stream_mode or () for mode in part.split(","))
    return _event_stream(house, run, after=last_event_id, modes=modes, cancel_on_leave=cancel_on_disconnect)


async def _admit(house: DeerFlow, thread_id: str, body: RunCreate, user: str) -> RunRecord:
    check_thread_id(thread_id)
    if body.if_not_exists == "reject":
        await owned_thread(house, thread_id, user)
    request = body.to_request(thread_id, user, most_steps=house.settings.max_recursion_limit)
    if request.checkpoint_id:
        await owned_thread(house, thread_id, user)
        if await house.state.latest(thread_id, checkpoint_id=request.checkpoint_id) is None:
            raise NotFoundError("checkpoint", request.checkpoint_id)
    return await house.start_run(request)


def _stateless_thread(body: RunCreate) -> str:
    return body.thread_id() or new_id()


def _location(run: RunRecord) -> dict[str, str]:
    path = f"/api/threads/{run.thread_id}/runs/{run.id}"
    return {"Content-Location": path, "Location": f"{path}/stream"}


def _event_stream(
    house: DeerFlow,
    run: RunRecord,
    *,
    after: str | None = None,
    modes: tuple[str, ...] = (),
    cancel_on_leave: bool = False,
) -> EventStream:
    async def cancel() -> None:
        try:
            await house.runs.cancel(run.id)
        except ConflictError:
            return  # it ended while the reader left

    return EventStream(
        house.runs.subscribe(run.id, after_seq=seq_of(after)),
        modes=frozenset(modes or run.request.stream_modes),
        headers=_location(run),
        on_leave=cancel if cancel_on_leave else None,
    )


async def _wait(house: DeerFlow, run: RunRecord, request: Request) -> Response:
    """Wait with an eye on the client: a client that leaves stops the run if it said so."""
    waiting = asyncio.create_task(house.runs.wait(run.id))
    try:
        while not waiting.done():
            await asyncio.wait((waiting,), timeout=0.5)
            if not waiting.done() and await request.is_disconnected():
                if run.request.on_disconnect is DisconnectMode.CANCEL:
                    await house.runs.cancel(run.id)
                break
    finally:
        waiting.cancel()
    return await _final_values(house, run.id)


async def _final_values(house: DeerFlow, run_id: str) -> Response:
    run = await house.runs.get(run_id)
    headers = _location(run)
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        return json_response({"status": run.status, "error": run.error}, headers=headers)
    snapshot = await house.state.latest(run.thread_id)
    values: dict[str, Any] = visible_values(snapshot.values) if snapshot is not None else {}
    interrupts = [interrupt for task in snapshot.tasks for interrupt in task.interrupts] if snapshot else []
    if interrupts:
        values = {**values, "__interrupt__": interrupts}
    return json_response(values, headers=headers)
