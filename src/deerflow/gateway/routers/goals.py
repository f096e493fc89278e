"""Routes for the goal of a thread: set, read, remove."""

from datetime import UTC, datetime

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.responses import Response

from deerflow.agents.middlewares.goal import MAX_CONTINUATIONS, MAX_OBJECTIVE_CHARS, new_goal
from deerflow.gateway.deps import (
    CurrentApp,
    CurrentUser,
    ThreadPath,
    idle_thread,
    json_response,
    owned_thread,
)
from deerflow.gateway.openapi import answers

router = APIRouter(tags=["goals"])


class Goal(BaseModel):
    """What is to be reached, and how often the agent may go on towards it by itself."""

    model_config = ConfigDict(extra="ignore")

    objective: str = Field(min_length=1, max_length=MAX_OBJECTIVE_CHARS)
    max_continuations: int = Field(MAX_CONTINUATIONS, ge=0, le=MAX_CONTINUATIONS)

    @field_validator("objective")
    @classmethod
    def _says_something(cls, objective: str) -> str:
        words = objective.strip()
        if not words:
            raise ValueError("say what is to be reached")
        return words


@router.get("/threads/{thread_id}/goal", **answers("ThreadGoal", 404))
async def get_goal(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return the goal of a thread; null where there is none.

    A thread that does not exist yet has none.
    """
    snapshot = await deerflow.state.latest(thread_id)
    if snapshot is None:
        return json_response({"goal": None})
    await owned_thread(deerflow, thread_id, user)
    return json_response({"goal": snapshot.values.get("goal")})


@router.put("/threads/{thread_id}/goal", **answers("ThreadGoal", 409))
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


@router.delete("/threads/{thread_id}/goal", **answers("ThreadGoal", 404, 409))
async def delete_goal(thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Remove the goal of a thread, if it has one.

    A run in flight answers 409.
    """
    snapshot = await deerflow.state.latest(thread_id)
    if snapshot is not None and snapshot.values.get("goal"):
        await idle_thread(deerflow, thread_id, user)
        await deerflow.threads.update_state(thread_id, {"goal": None})
    return json_response({"goal": None})
