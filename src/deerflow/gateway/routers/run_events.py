"""Routes for the event log of a run and its changes to the thread's files."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord
from deerflow.files.changes import Changes, changes_of
from deerflow.files.snapshots import SnapshotStore
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, known_run
from deerflow.gateway.openapi import answers
from deerflow.gateway.run_views import run_rows

router = APIRouter(tags=["runs"])

_MOST_RUNS = 1000


@router.get(
    "/threads/{thread_id}/runs/{run_id}/events",
    operation_id="list_run_events",
    **answers("list[RunEvent]", 404),
)
async def list_events(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    event_types: Annotated[str | None, Query(max_length=1000)] = None,
    task_id: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 500,
    after_seq: Annotated[int, Query(ge=-1)] = -1,
) -> Response:
    """List rows of a run's log, oldest first.

    `event_types` and `task_id` filter; `after_seq` continues after a row. The runs of a thread that this one
    was forked from can be read too.
    """
    run = await known_run(deerflow, thread_id, run_id, user)
    if run is None:
        return json_response([])
    types = frozenset(part.strip() for part in event_types.split(",")) if event_types else None
    found: list[dict[str, Any]] = []
    async for row in run_rows(
        deerflow.storage, run, after_seq=after_seq, wants=lambda name: types is None or name in types
    ):
        if task_id is None or _task_of(row["content"]) == task_id:
            found.append(row)
        if len(found) == limit:
            break
    return json_response(found)


@router.get(
    "/threads/{thread_id}/runs/{run_id}/workspace-changes",
    operation_id="get_workspace_changes",
    **answers("WorkspaceChanges", 404),
)
async def workspace_changes(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    include_files: bool = False,
    include_diff: bool = False,
) -> Response:
    """Return what a run created, changed and deleted among the thread's files.

    The comparison ends with the run's end or, while it is in flight, with now. `available` is false where the
    files before the run are not kept.
    """
    run = await known_run(deerflow, thread_id, run_id, user)
    changes = await _changes(deerflow, run) if run else Changes(is_known=False)
    return json_response(changes.out(with_files=include_files or include_diff, with_diff=include_diff))


async def _changes(deerflow: DeerFlow, run: RunRecord) -> Changes:
    ids = [known.id for known in await deerflow.runs.of_thread(run.thread_id, limit=_MOST_RUNS)]
    later = ids[: ids.index(run.id)][::-1] if run.id in ids else []
    store = SnapshotStore(deerflow.folders(run.user_id, run.thread_id))
    return await asyncio.to_thread(changes_of, store, run.id, later)


def _task_of(content: Any) -> Any:
    return content.get("task_id") if isinstance(content, dict) else None
