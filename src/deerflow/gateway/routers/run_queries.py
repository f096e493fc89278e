"""Routes for existing runs: list, join, cancel, delete."""

from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import CancelAction, RunRecord, RunStatus
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, owned_run, owned_thread
from deerflow.gateway.openapi import answers
from deerflow.gateway.pagination import names_in, page_of, rows_with, total_of
from deerflow.gateway.run_responses import event_stream, wait_for
from deerflow.gateway.sse import EventStream
from deerflow.gateway.thread_follower import position_of, thread_events
from deerflow.runtime.json_views import run_out
from deerflow.runtime.translate import CLIENT_MODES

router = APIRouter(tags=["runs"])

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
ModeQuery = Annotated[list[str] | None, Query()]

_MOST_CANCELLED = 1000
_THREAD_MODES = frozenset(("run_modes", "lifecycle", "state_update"))


class CancelMany(BaseModel):
    """Which runs to stop: some by id, or all of a thread or of everybody's that are in a status."""

    model_config = ConfigDict(extra="forbid")

    thread_id: str | None = None
    run_ids: list[str] | None = None
    status: Literal["pending", "running", "all"] | None = None


@router.get("/threads/{thread_id}/runs", **answers("list[SelectedRun]", 400, 404))
async def list_runs(
    thread_id: ThreadPath,
    user: CurrentUser,
    deerflow: CurrentApp,
    status: RunStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
    select: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """List the runs of a thread, newest first.

    The header `X-Pagination-Total` has the number of all that match.
    """
    await owned_thread(deerflow, thread_id, user)
    runs = await deerflow.runs.of_thread(thread_id, status=status, limit=limit, offset=offset)
    count = partial(deerflow.storage.runs.count_of_thread, thread_id, status=status)
    total = await total_of(runs, limit=limit, offset=offset, count=count)
    page, headers = page_of(runs, limit=limit, offset=offset, total=total)
    return json_response(rows_with([run_out(run) for run in page], names_in(select)), headers=headers)


@router.get("/threads/{thread_id}/runs/{run_id}", **answers("Run", 404))
async def get_run(thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return one run with its status, usage and costs."""
    return json_response(run_out(await owned_run(deerflow, thread_id, run_id, user)))


@router.delete("/threads/{thread_id}/runs/{run_id}", **answers(None, 404, 409, status=204))
async def delete_run(thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete a run that has ended, with its log; the thread's state stays.

    A run in flight answers 409.
    """
    await owned_run(deerflow, thread_id, run_id, user)
    await deerflow.runs.delete(run_id, thread_id)
    return Response(status_code=204)


@router.post(
    "/threads/{thread_id}/runs/{run_id}/cancel",
    **answers(None, 404, 409, status=202, empty={204: "The run has stopped; with `wait`."}),
)
async def cancel_run(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    wait: bool = False,
    action: CancelAction = CancelAction.INTERRUPT,
) -> Response:
    """Stop a run.

    Without `wait` the answer is 202 at once; with it 204 when the run has stopped. `action=rollback` also
    restores the state and files from before the run; the header `DeerFlow-Files-Kept` names files that could
    not be restored. A run that has ended answers 409.
    """
    await owned_run(deerflow, thread_id, run_id, user)
    run = await deerflow.runs.cancel(run_id, action=action, wait=wait)
    kept = run.error if action is CancelAction.ROLLBACK and run.status.is_terminal else None
    headers = {"DeerFlow-Files-Kept": _header_text(kept)} if kept else None
    return Response(status_code=204 if wait else 202, headers=headers)


@router.post("/runs/cancel", **answers(None, 400, 404, status=204))
async def cancel_runs(
    body: CancelMany, user: CurrentUser, deerflow: CurrentApp, action: CancelAction = CancelAction.INTERRUPT
) -> Response:
    """Stop many runs: those that are named, or all in a status.

    The body has either `run_ids`, at most 1000, or `status`; `thread_id` limits both to one thread. Runs that
    have ended are left alone.
    """
    if (body.run_ids is None) == (body.status is None):
        raise InvalidInputError("send either run_ids or a status (pending, running or all)")
    if body.run_ids is not None and len(body.run_ids) > _MOST_CANCELLED:
        raise InvalidInputError(f"at most {_MOST_CANCELLED} runs can be stopped at once")
    await deerflow.runs.cancel_many(await _chosen(deerflow, user, body), action=action)
    return Response(status_code=204)


@router.get("/threads/{thread_id}/runs/{run_id}/join", **answers(("FinalValues", "events"), 400, 404))
async def join_run(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    request: Request,
    last_event_id: LastEventId = None,
    stream_mode: ModeQuery = None,
) -> Response:
    """Wait for the end of a run and return the final values of its thread.

    With `Accept: text/event-stream` the run's events are streamed instead, as by `GET …/stream`.
    """
    run = await owned_run(deerflow, thread_id, run_id, user)
    if "text/event-stream" in request.headers.get("accept", ""):
        return event_stream(deerflow, run, after=last_event_id, modes=_named(stream_mode, CLIENT_MODES))
    return await wait_for(deerflow, run, request, cancel_on_disconnect=False)


@router.get(
    "/threads/{thread_id}/runs/{run_id}/stream", operation_id="join_run_stream", **answers("events", 400, 404)
)
@router.post(
    "/threads/{thread_id}/runs/{run_id}/stream",
    operation_id="join_run_stream_by_post",
    **answers("events", 400, 404),
)
async def join_stream(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    last_event_id: LastEventId = None,
    stream_mode: ModeQuery = None,
    cancel_on_disconnect: bool = False,
    action: CancelAction | None = None,
    wait: bool = False,
) -> Response:
    """Stream the events of a run from any point of its log to its end.

    `Last-Event-ID` is the id of the last event that the client has; without it the stream begins with the
    first. `stream_mode` chooses events, `action` stops the run first. Ended runs are replayed. The first
    event is `metadata`, the last `end`; lines that begin with a colon keep the connection open.
    """
    run = await owned_run(deerflow, thread_id, run_id, user)
    if action is not None and not run.status.is_terminal:
        with suppress(ConflictError):  # it has ended meanwhile
            await deerflow.runs.cancel(run_id, action=action, wait=wait)
    modes = _named(stream_mode, CLIENT_MODES)
    return event_stream(
        deerflow, run, after=last_event_id, modes=modes, cancel_on_disconnect=cancel_on_disconnect
    )


@router.get("/threads/{thread_id}/stream", **answers("events", 400, 404))
async def join_thread_stream(
    thread_id: ThreadPath,
    user: CurrentUser,
    deerflow: CurrentApp,
    last_event_id: LastEventId = None,
    stream_mode: ModeQuery = None,
) -> Response:
    """Stream the events of all runs of a thread, now and later, until the client leaves.

    `stream_mode` is any of `run_modes`, `lifecycle` and `state_update`. The stream begins with the run in
    flight; `Last-Event-ID` continues an earlier stream.
    """
    await owned_thread(deerflow, thread_id, user)
    # Before the response starts: a client that has seen its start misses no later run.
    position = await position_of(deerflow, thread_id, user, last_event_id)
    return EventStream(
        thread_events(deerflow, position, _named(stream_mode, _THREAD_MODES) or ("run_modes",)),
        modes=CLIENT_MODES,
        headers={},
        watch=deerflow.watch,
        is_endless=True,
    )


async def _chosen(deerflow: DeerFlow, user: str, body: CancelMany) -> list[RunRecord]:
    if body.thread_id is not None:
        await owned_thread(deerflow, body.thread_id, user)
    if body.run_ids is not None:
        found = [await deerflow.runs.get(run_id, body.thread_id) for run_id in body.run_ids]
        return [run for run in found if run.user_id == user]
    return [
        run
        for run in await deerflow.runs.active()
        if run.user_id == user
        and body.thread_id in (None, run.thread_id)
        and body.status in ("all", run.status)
    ]


def _header_text(text: str) -> str:
    """Return text that is safe as a header value: file names may contain line breaks."""
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text)


def _named(query: list[str] | None, known: frozenset[str]) -> tuple[str, ...]:
    """Return the modes that a query names; `InvalidInputError` if one is unknown."""
    modes = names_in(query)
    if unknown := sorted(set(modes) - known):
        raise InvalidInputError(f"stream_mode {unknown} is unknown; known are {sorted(known)}")
    return modes
