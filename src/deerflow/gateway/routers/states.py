"""Routes for a thread's state: read the current one and past ones, update it, and set its goal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, field_validator
from starlette.responses import Response

from deerflow.agents.middlewares.goal import MAX_CONTINUATIONS, MAX_OBJECTIVE_CHARS, new_goal
from deerflow.app import DeerFlow
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.gateway.deps import (
    CurrentApp,
    CurrentUser,
    ThreadPath,
    contract_of,
    idle_thread,
    json_response,
    owned_thread,
)
from deerflow.gateway.openapi import answers
from deerflow.gateway.pagination import names_in, selected_values
from deerflow.runtime.json_views import changed_state_out, empty_state, state_out, storage_out

router = APIRouter(tags=["state"])

Selection = Annotated[list[str] | None, Query()]


class StateUpdate(BaseModel):
    """Values to set in a thread's state."""

    values: dict[str, Any] | list[dict[str, Any]] | None = None
    checkpoint_id: str | None = None
    checkpoint: dict[str, Any] | None = None
    as_node: str | None = None


class HistoryQuery(BaseModel):
    """Which states of a thread's past to list."""

    limit: int = Field(10, ge=1, le=1000)
    before: str | dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    select: list[str] | None = None


class StateQuery(BaseModel):
    """Which state of a thread, and what of it."""

    checkpoint: dict[str, Any] | str | None = None
    subgraphs: bool = False
    """Accepted: sub-agents have threads of their own."""
    select: list[str] | None = None


@router.get("/threads/{thread_id}/state", **answers("SelectedState", 404))
async def get_state(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, select: Selection = None
) -> Response:
    """Return the state of a thread as it is now.

    A thread without runs has an empty state.
    """
    await owned_thread(deerflow, thread_id, user)
    return await _state(deerflow, thread_id, None, names_in(select))


@router.get("/threads/{thread_id}/storage", **answers("ThreadStorage", 404))
async def get_thread_storage(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return how many bytes the states of a thread and of its sub-agents take in the database."""
    await owned_thread(deerflow, thread_id, user)
    return json_response(storage_out(thread_id, await deerflow.storage.checkpoints.asizes(thread_id)))


@router.get("/threads/{thread_id}/state/{checkpoint_id}", **answers("SelectedState", 404))
async def get_state_at(
    thread_id: ThreadPath,
    checkpoint_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    select: Selection = None,
) -> Response:
    """Return the state of a thread at a checkpoint."""
    await owned_thread(deerflow, thread_id, user)
    return await _state(deerflow, thread_id, checkpoint_id, names_in(select))


@router.post("/threads/{thread_id}/state/checkpoint", **answers("SelectedState", 400, 404))
async def find_state_at(
    thread_id: ThreadPath, body: StateQuery, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Return the state of a thread at the checkpoint that the body names."""
    await owned_thread(deerflow, thread_id, user)
    return await _state(deerflow, thread_id, _checkpoint_id(body.checkpoint), body.select)


@router.post("/threads/{thread_id}/state", **answers("ChangedState", 400, 404, 409))
async def update_state(
    thread_id: ThreadPath, body: StateUpdate, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Set values in the state of a thread, as a node of the graph would.

    Values are merged by the rules of the graph: messages are added or replaced by id, other values replaced.
    `checkpoint_id` changes an older state, which becomes the latest. A run in flight answers 409.
    """
    await idle_thread(deerflow, thread_id, user)
    checkpoint_id = body.checkpoint_id or _checkpoint_id(body.checkpoint)
    await deerflow.threads.update_state(
        thread_id, body.values, checkpoint_id=checkpoint_id, as_node=body.as_node
    )
    snapshot = await deerflow.state.latest(thread_id)
    return json_response(changed_state_out(snapshot) if snapshot else empty_state(thread_id))


@router.post("/threads/{thread_id}/history", **answers("list[SelectedState]", 400, 404))
async def search_history(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, body: HistoryQuery | None = None
) -> Response:
    """List the states of a thread, newest first.

    `before` continues an earlier answer. A thread that does not exist has an empty history, or answers 404
    with `compatibility: langgraph`.
    """
    return await _history(deerflow, thread_id, user, body or HistoryQuery())


@router.get("/threads/{thread_id}/history", **answers("list[SelectedState]", 400, 404))
async def get_history(
    thread_id: ThreadPath,
    user: CurrentUser,
    deerflow: CurrentApp,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    before: str | None = None,
) -> Response:
    """List the states of a thread, newest first; the same as `POST` with its parameters in the address."""
    return await _history(deerflow, thread_id, user, HistoryQuery(limit=limit, before=before))


async def _history(deerflow: DeerFlow, thread_id: str, user: str, query: HistoryQuery) -> Response:
    try:
        await owned_thread(deerflow, thread_id, user)
    except NotFoundError:  # frontends ask before the first message creates the thread
        if not contract_of(deerflow).missing_is_empty:
            raise
        return json_response([])
    before = query.before if isinstance(query.before, str) else _checkpoint_id(query.before)
    if before and not _is_uuid(before):
        raise InvalidInputError(
            f"before {before[:80]!a} is no checkpoint id; take one from this route's answer"
        )
    if query.checkpoint and query.checkpoint.get("checkpoint_ns"):
        return json_response([])  # a subgraph's namespace: there are no subgraphs
    snapshots = await deerflow.state.history(
        thread_id,
        limit=query.limit,
        before=before,
        checkpoint_id=_checkpoint_id(query.checkpoint),
        metadata=query.metadata or None,
    )
    is_newest = not before and not query.checkpoint and not query.metadata and _shows_cards(deerflow)
    return json_response(
        [
            selected_values(state_out(snapshot, shows_cards=is_newest and index == 0), query.select)
            for index, snapshot in enumerate(snapshots)
        ]
    )


async def _state(
    deerflow: DeerFlow, thread_id: str, checkpoint_id: str | None, fields: Sequence[str] | None = None
) -> Response:
    snapshot = await deerflow.state.latest(thread_id, checkpoint_id=checkpoint_id)
    if snapshot is None and checkpoint_id is not None:
        raise NotFoundError("checkpoint", checkpoint_id)
    if snapshot is None:
        return json_response(selected_values(empty_state(thread_id), fields))
    return json_response(
        selected_values(
            state_out(snapshot, shows_cards=checkpoint_id is None and _shows_cards(deerflow)), fields
        )
    )


def _shows_cards(deerflow: DeerFlow) -> bool:
    return deerflow.settings.compatibility == "deerflow"


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _checkpoint_id(checkpoint: Any) -> str | None:
    if checkpoint is None:
        return None
    configurable = checkpoint.get("configurable", checkpoint) if isinstance(checkpoint, dict) else None
    if not isinstance(configurable, dict):
        raise InvalidInputError("checkpoint must be an object with a checkpoint_id")
    found = configurable.get("checkpoint_id") or configurable.get("id")
    return str(found) if found else None


goals_router = APIRouter(tags=["goals"])


class Goal(BaseModel):
    """What is to be reached, and how often the agent may go on towards it by itself."""

    objective: str = Field(min_length=1, max_length=MAX_OBJECTIVE_CHARS)
    max_continuations: int = Field(MAX_CONTINUATIONS, ge=0, le=MAX_CONTINUATIONS)

    @field_validator("objective")
    @classmethod
    def _stripped(cls, objective: str) -> str:
        stripped = objective.strip()
        if not stripped:
            raise ValueError("say what is to be reached")
        return stripped


@goals_router.get("/threads/{thread_id}/goal", **answers("ThreadGoal", 404))
async def get_goal(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return the goal of a thread; null where there is none.

    A thread that does not exist yet has none.
    """
    snapshot = await deerflow.state.latest(thread_id)
    if snapshot is None:
        return json_response({"goal": None})
    await owned_thread(deerflow, thread_id, user)
    return json_response({"goal": snapshot.values.get("goal")})


@goals_router.put("/threads/{thread_id}/goal", **answers("ThreadGoal", 409))
async def put_goal(thread_id: ThreadPath, body: Goal, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Set the goal of a thread, in place of an earlier one; the thread is created where it does not exist.

    After each answer a model judges whether the goal is reached; until then the agent goes on by itself, at
    most `max_continuations` times. A run in flight answers 409.
    """
    goal = new_goal(body.objective, max_continuations=body.max_continuations, now=datetime.now(UTC))
    await deerflow.storage.threads.create(thread_id, user, {})
    await idle_thread(deerflow, thread_id, user)
    await deerflow.threads.update_state(thread_id, {"goal": goal})
    return json_response({"goal": goal})


@goals_router.delete("/threads/{thread_id}/goal", **answers("ThreadGoal", 404, 409))
async def delete_goal(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Remove the goal of a thread, if it has one.

    A run in flight answers 409.
    """
    snapshot = await deerflow.state.latest(thread_id)
    if snapshot is not None and snapshot.values.get("goal"):
        await idle_thread(deerflow, thread_id, user)
        await deerflow.threads.update_state(thread_id, {"goal": None})
    return json_response({"goal": None})
