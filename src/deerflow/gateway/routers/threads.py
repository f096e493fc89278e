"""Routes for threads: create, search, change, copy, delete."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter
from orjson import Fragment
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import LEAD_AGENT, Thread, ThreadStatus, new_id
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.gateway.deps import (
    CurrentApp,
    CurrentUser,
    ThreadId,
    ThreadPath,
    contract_of,
    free_thread,
    idle_thread,
    json_response,
    owned_thread,
)
from deerflow.gateway.openapi import CHANGED_UNSHOWN, answers
from deerflow.gateway.pagination import Prefer, changed, page_of, selected_values, total_of
from deerflow.runtime import to_json, visible_values
from deerflow.runtime.json_views import thread_out
from deerflow.storage import ThreadQuery

router = APIRouter(tags=["threads"])

PIN = "deerflow_pinned"
"""Metadata key of a pinned thread; a change of it does not update `updated_at`."""
_TITLE = "values.title"
_POLLED = frozenset({"thread_id", "updated_at", "values", "metadata"})
"""Fields that DeerFlow's frontend selects every few seconds, to show the titles."""
_GRAPH = ("graph_id", LEAD_AGENT)
_MOST_READ = 1000
"""How many states one search by values reads at most."""
_MOST_LISTED = 8 * 1024 * 1024
"""How many bytes of states one list holds."""


JsonPath = tuple[str | int, ...]
"""Steps of a path such as `values.messages[-1].content`."""

_PATH = re.compile(r"[^.\[\]]+(\[-?\d{1,6}\])*(\.[^.\[\]]+(\[-?\d{1,6}\])*)*")
_PATH_STEP = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")

ThreadField = Literal[
    "thread_id",
    "status",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "values",
    "interrupts",
    "waits_for_answer",
    "config",
    "context",
    "error",
    "extracted",
]
"""The thread fields that LangGraph's clients select; we have most of them."""
OneValue = Annotated[str, StringConstraints(pattern=r"^values\.[^.]+$", max_length=256)]
"""One value of a thread's state; `values.title` is available without reading the state."""


class StepUpdate(BaseModel):
    """What one node wrote in a step of a thread from elsewhere."""

    values: dict[str, Any] | list[dict[str, Any]] | None = None
    as_node: str | None = None


class Superstep(BaseModel):
    """One step of a thread from elsewhere."""

    updates: list[StepUpdate] = Field(max_length=100)


class ThreadCreate(BaseModel):
    """A new thread, or an old one when the id is known already."""

    thread_id: ThreadId | None = None
    assistant_id: str | None = None
    metadata: dict[str, Any] | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    ttl: dict[str, Any] | float | None = None
    """Accepted: threads stay until they are deleted."""
    supersteps: list[Superstep] | None = Field(None, max_length=1000)
    """Steps of a thread from elsewhere, to be taken in one after another."""


class ThreadSearch(BaseModel):
    """Which threads to list."""

    metadata: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    ids: list[str] | None = None
    limit: int = Field(100, ge=1, le=1000)
    offset: int = Field(0, ge=0)
    extract: dict[str, str] | None = Field(None, max_length=10)
    status: Literal["idle", "busy", "interrupted", "error"] | None = None
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[ThreadField | OneValue] | None = None


class ThreadPatch(BaseModel):
    """A change to a thread's metadata."""

    metadata: dict[str, Any] = {}


class ThreadPrune(BaseModel):
    """Threads to delete, or to strip of their past."""

    thread_ids: list[str] = Field(max_length=1000)
    strategy: Literal["delete", "keep_latest"] = "delete"


@router.post("/threads", **answers("Thread", 400, 409))
async def create_thread(body: ThreadCreate, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Create a thread; an id that exists returns that thread.

    `if_exists: raise` answers 409 instead. `supersteps` fill a new thread with the states of a thread from
    elsewhere.
    """
    thread_id, metadata = body.thread_id or new_id(), _own_metadata(body.metadata or {})
    # Supersteps create a thread; an existing one keeps its own history.
    is_new = body.if_exists == "raise" or bool(body.supersteps)
    try:
        thread = await deerflow.storage.threads.create(thread_id, user, metadata, is_new=is_new)
    except ConflictError:
        if body.if_exists == "raise" or not is_new:
            raise
        return json_response(thread_out(await deerflow.storage.threads.create(thread_id, user, metadata)))
    if body.supersteps:
        await _add_supersteps(deerflow, thread, body.supersteps)
        thread = await owned_thread(deerflow, thread.id, user)
    return json_response(thread_out(thread))


@router.post("/threads/search", **answers("list[SelectedThread]", 400))
async def search_threads(
    user: CurrentUser, deerflow: CurrentApp, body: ThreadSearch | None = None
) -> Response:
    """List threads, last used first.

    `values` hold the whole state until all states together have 8 MiB; later threads have their titles only.
    Clients that need titles only select `values.title`. The header `X-Pagination-Total` has the number of all
    that match.
    """
    search = body or ThreadSearch()
    paths = {name: parse_path(path) for name, path in (search.extract or {}).items()}
    found, total = await _found(deerflow, search, user)
    threads, headers = page_of(found, limit=search.limit, offset=search.offset, total=total)
    rows = await _rows(deerflow, threads, search.select, paths)
    return json_response(rows, headers=headers)


@router.post("/threads/count", **answers("int"))
async def count_threads(
    user: CurrentUser, deerflow: CurrentApp, body: ThreadSearch | None = None
) -> Response:
    """Count the threads that match a filter, as a plain number."""
    search = body or ThreadSearch()
    if search.values:
        return json_response(len(await _with_values(deerflow, search, user)))
    return json_response(await deerflow.storage.threads.count(_query(search, user)))


@router.post("/threads/prune", **answers("Pruned", 409))
async def prune_threads(body: ThreadPrune, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete threads, or all their states but the latest; this cannot be undone.

    `strategy` is `delete` or `keep_latest`. Threads that do not exist are skipped; a run in flight on any of
    them answers 409 before anything is deleted.
    """
    found = await deerflow.storage.threads.search(
        ThreadQuery(user_id=user, ids=body.thread_ids, limit=len(body.thread_ids))
    )
    ready = idle_thread if body.strategy == "keep_latest" else free_thread
    owned = [await ready(deerflow, thread.id, user) for thread in found]
    pruned = 0
    for thread in owned:
        if body.strategy == "keep_latest":
            pruned += await deerflow.threads.prune_checkpoints(thread.id) > 0
        else:
            await deerflow.threads.delete(thread.id, user)
            pruned += 1
    return json_response({"pruned_count": pruned})


@router.post("/threads/{thread_id}/copy", **answers("Thread", 404, 409))
async def copy_thread(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Copy a thread with its conversation and files, and return the copy.

    A run in flight answers 409.
    """
    thread = await idle_thread(deerflow, thread_id, user)
    return json_response(await _with_state(deerflow, await deerflow.threads.copy(thread)))


@router.get("/threads/{thread_id}", **answers("Thread", 404))
async def get_thread(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return a thread with the values of its state."""
    return json_response(await _with_state(deerflow, await owned_thread(deerflow, thread_id, user)))


@router.patch("/threads/{thread_id}", **answers("Thread", 404, empty=CHANGED_UNSHOWN))
async def patch_thread(
    thread_id: ThreadPath, body: ThreadPatch, user: CurrentUser, deerflow: CurrentApp, prefer: Prefer = None
) -> Response:
    """Merge metadata into that of a thread."""
    await owned_thread(deerflow, thread_id, user)
    metadata = _own_metadata(body.metadata)
    thread = await deerflow.storage.threads.update(thread_id, metadata=metadata, touch=set(metadata) != {PIN})
    return changed(thread_out(thread), prefer)


@router.delete("/threads/{thread_id}", **answers("Done", 404, 409))
async def delete_thread(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete a thread with its states, runs and files.

    A run in flight answers 409, or is cancelled first with `compatibility: langgraph`.
    """
    await free_thread(deerflow, thread_id, user)
    await deerflow.threads.delete(thread_id, user)
    return json_response({"success": True, "message": f"thread {thread_id} is deleted"})


async def _add_supersteps(deerflow: DeerFlow, thread: Thread, steps: Sequence[Superstep]) -> None:
    """Write the supersteps into a new thread; delete the thread if one of them fails."""
    try:
        for step in steps:
            for update in step.updates:
                await deerflow.threads.update_state(thread.id, update.values, as_node=update.as_node)
    except BaseException:
        # Otherwise a corrected request would find an existing thread and leave it unchanged.
        await asyncio.shield(deerflow.threads.delete(thread.id, thread.user_id))
        raise


async def _with_state(deerflow: DeerFlow, thread: Thread) -> dict[str, Any]:
    snapshot = await deerflow.state.latest(thread.id)
    shown = thread_out(thread, visible_values(snapshot.values) if snapshot else None)
    if snapshot is not None:
        shown["interrupts"] = {task.id: list(task.interrupts) for task in snapshot.tasks if task.interrupts}
    return shown


async def _rows(
    deerflow: DeerFlow, threads: Sequence[Thread], fields: Sequence[str] | None, paths: Mapping[str, JsonPath]
) -> list[Fragment]:
    """Return threads as JSON with the selected fields.

    States are read if they are selected, up to a total size: later threads have their titles only.
    """
    needs_state = bool(paths) or not fields or any(_is_in_state(field) for field in fields)
    if fields and set(fields) == _POLLED and not paths and contract_of(deerflow).lists_titles:
        needs_state = False
    shown, bytes_left = [], _MOST_LISTED if needs_state else 0
    for thread in threads:
        whole = await _with_state(deerflow, thread) if bytes_left > 0 else thread_out(thread)
        row = to_json(_chosen(whole, fields, paths))
        bytes_left -= len(row)
        shown.append(Fragment(row))
    return shown


def _is_in_state(field: str) -> bool:
    return field == "values" or (field.startswith("values.") and field != _TITLE)


async def _found(deerflow: DeerFlow, search: ThreadSearch, user: str) -> tuple[list[Thread], int]:
    """Return a page of matching threads and the total count."""
    if not search.values:
        query = _query(search, user)
        found = await deerflow.storage.threads.search(query)
        count = partial(deerflow.storage.threads.count, query)
        return found, await total_of(found, limit=search.limit, offset=search.offset, count=count)
    matching = await _with_values(deerflow, search, user)
    return matching[search.offset : search.offset + search.limit], len(matching)


async def _with_values(deerflow: DeerFlow, search: ThreadSearch, user: str) -> list[Thread]:
    """Return the threads whose state has these values; states are not indexed, so all of them are read."""
    query = replace(_query(search, user), limit=_MOST_READ, offset=0)
    wanted = search.values or {}
    found = []
    for thread in await deerflow.storage.threads.search(query):
        values = (await _with_state(deerflow, thread))["values"]
        plain = orjson.loads(to_json({key: values.get(key) for key in wanted}))
        if plain == wanted:
            found.append(thread)
    return found


def _chosen(
    shown: dict[str, Any], fields: Sequence[str] | None, paths: Mapping[str, JsonPath]
) -> dict[str, Any]:
    chosen = selected_values(shown, fields)
    if paths:
        plain = orjson.loads(to_json(shown))
        chosen["extracted"] = {name: value_at(plain, path) for name, path in paths.items()}
    return chosen


def _query(body: ThreadSearch, user: str) -> ThreadQuery:
    # LangGraph's server stores the graph of a thread's runs in its metadata, and clients filter by it;
    # here every thread has the same graph.
    wanted = {key: value for key, value in (body.metadata or {}).items() if (key, value) != _GRAPH}
    return ThreadQuery(
        user_id=user,
        metadata=wanted or None,
        status=ThreadStatus(body.status) if body.status else None,
        ids=body.ids,
        limit=body.limit,
        offset=body.offset,
        # The row has no separate time for the state: it changes with the thread.
        sort_by="updated_at" if body.sort_by is None or body.sort_by == "state_updated_at" else body.sort_by,
        descending=body.sort_order != "asc",
    )


def _own_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Remove the keys that only the server sets: the owner of the thread."""
    return {key: value for key, value in metadata.items() if key not in ("owner_id", "user_id")}


def parse_path(text: str) -> JsonPath:
    """Parse a path into its steps; `InvalidInputError` if it is malformed."""
    if len(text) > 256 or _PATH.fullmatch(text) is None:
        raise InvalidInputError(f"'{text[:80]}' is no path; write it like values.messages[-1].content")
    return tuple(name or int(index) for name, index in _PATH_STEP.findall(text))


def value_at(whole: Any, path: JsonPath) -> Any:
    """Return the value at a path; None if there is none."""
    for step in path:
        try:
            whole = whole[step]
        except (KeyError, IndexError, TypeError):
            return None
    return whole
