"""Threads over HTTP: create, find, change, delete."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.domain import Thread, ThreadStatus, new_id
from deerflow.errors import ConflictError, NotFoundError
from deerflow.gateway.deps import CurrentUser, House, ThreadPath, json_response, owned_thread
from deerflow.gateway.wire import ThreadCreate, ThreadPatch, ThreadSearch
from deerflow.runtime import visible_values
from deerflow.runtime.shapes import thread_out
from deerflow.storage.base import ThreadQuery

router = APIRouter(tags=["threads"])

PIN = "deerflow_pinned"
"""Pinning a thread says nothing about when it was used last."""


@router.post("/threads")
async def create_thread(body: ThreadCreate, user: CurrentUser, house: House) -> Response:
    """Create a thread; an id that is known already returns that thread."""
    if body.thread_id and body.if_exists == "raise" and await _exists(house, body.thread_id):
        raise ConflictError(f"thread '{body.thread_id}' exists already")
    metadata = _own_metadata(body.metadata or {})
    thread = await house.storage.threads.create(body.thread_id or new_id(), user, metadata)
    return json_response(thread_out(thread))


@router.post("/threads/search")
async def search_threads(user: CurrentUser, house: House, body: ThreadSearch | None = None) -> Response:
    """List threads, last used first."""
    wish = body or ThreadSearch()
    threads = await house.storage.threads.search(_query(wish, user))
    return json_response([_selected(thread, wish.select) for thread in threads])


@router.post("/threads/count")
async def count_threads(user: CurrentUser, house: House, body: ThreadSearch | None = None) -> Response:
    """Count threads."""
    return json_response(await house.storage.threads.count(_query(body or ThreadSearch(), user)))


@router.get("/threads/{thread_id}")
async def get_thread(thread_id: ThreadPath, user: CurrentUser, house: House) -> Response:
    """Return a thread with its values."""
    thread = await owned_thread(house, thread_id, user)
    snapshot = await house.state.latest(thread_id)
    shown = thread_out(thread, visible_values(snapshot.values) if snapshot else None)
    if snapshot is not None:
        shown["interrupts"] = {task.id: list(task.interrupts) for task in snapshot.tasks if task.interrupts}
    return json_response(shown)


@router.patch("/threads/{thread_id}")
async def patch_thread(thread_id: ThreadPath, body: ThreadPatch, user: CurrentUser, house: House) -> Response:
    """Merge metadata into a thread's."""
    await owned_thread(house, thread_id, user)
    metadata = _own_metadata(body.metadata)
    thread = await house.storage.threads.update(thread_id, metadata=metadata, touch=set(metadata) != {PIN})
    return json_response(thread_out(thread))


@router.delete("/threads/{thread_id}")
async def delete_thread(thread_id: ThreadPath, user: CurrentUser, house: House) -> Response:
    """Delete a thread with everything that belongs to it."""
    await owned_thread(house, thread_id, user)
    await house.delete_thread(thread_id, user)
    return json_response({"success": True, "message": f"thread {thread_id} is deleted"})


async def _exists(house: House, thread_id: str) -> bool:
    try:
        await house.storage.threads.get(thread_id)
    except NotFoundError:
        return False
    return True


def _query(body: ThreadSearch, user: str) -> ThreadQuery:
    return ThreadQuery(
        user_id=user,
        metadata=body.metadata or None,
        status=ThreadStatus(body.status) if body.status else None,
        ids=body.ids,
        limit=body.limit,
        offset=body.offset,
        sort_by=body.sort_by or "updated_at",
        descending=body.sort_order != "asc",
    )


def _selected(thread: Thread, fields: list[str] | None) -> dict[str, Any]:
    shown = thread_out(thread)
    return {key: value for key, value in shown.items() if key in fields} if fields else shown


def _own_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata without what only the server says: whose thread it is."""
    return {key: value for key, value in metadata.items() if key not in ("owner_id", "user_id")}
