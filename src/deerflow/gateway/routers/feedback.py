"""Routes for what a user decided: ratings of runs, and tool calls that run without approval."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.agents.allowed_calls import AllowedCalls
from deerflow.app import DeerFlow
from deerflow.domain import new_id
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, known_run, owned_thread
from deerflow.gateway.openapi import answers
from deerflow.runtime.feedback import OWN, RunFeedback, delete_feedback, feedback_of, put_feedback
from deerflow.runtime.json_views import stamp
from deerflow.storage import ThreadQuery

router = APIRouter(tags=["feedback"])

_MOST_RATINGS = 100
"""Maximum number of ratings per run."""


class FeedbackUpsert(BaseModel):
    """The user's rating of a run, in place of an earlier one."""

    rating: int
    comment: str | None = Field(None, max_length=10_000)


class FeedbackCreate(FeedbackUpsert):
    """A further rating, of the run or of one of its messages."""

    message_id: str | None = Field(None, max_length=256)


@router.put(
    "/threads/{thread_id}/runs/{run_id}/feedback",
    operation_id="put_feedback",
    **answers("Feedback", 400, 404),
)
async def put(
    thread_id: ThreadPath, run_id: str, body: FeedbackUpsert, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Rate a run; the user's earlier rating of the run is replaced.

    `rating` is 1 or -1.
    """
    _check(body)
    await known_run(deerflow, thread_id, run_id, user)
    known = dict(await feedback_of(deerflow.storage.store, thread_id, run_id)).get(OWN)
    rating = known or _new_rating(thread_id, run_id, user)
    rating = replace(rating, rating=body.rating, comment=body.comment)
    await put_feedback(deerflow.storage.store, rating, key=OWN)
    return json_response(asdict(rating))


@router.delete(
    "/threads/{thread_id}/runs/{run_id}/feedback", operation_id="delete_feedback", **answers("Done", 404)
)
async def delete(thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete the user's rating of a run."""
    await known_run(deerflow, thread_id, run_id, user)
    return await _deleted(deerflow, thread_id, run_id, OWN)


@router.post("/threads/{thread_id}/runs/{run_id}/feedback", **answers("Feedback", 400, 404, 409))
async def create_feedback(
    thread_id: ThreadPath, run_id: str, body: FeedbackCreate, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Add a rating to a run, or to one of its messages.

    `rating` is 1 or -1. A run holds at most 100 ratings (409).
    """
    _check(body)
    await known_run(deerflow, thread_id, run_id, user)
    if len(await feedback_of(deerflow.storage.store, thread_id, run_id)) >= _MOST_RATINGS:
        raise ConflictError(f"run {run_id} has {_MOST_RATINGS} ratings already; delete some first")
    rating = replace(
        _new_rating(thread_id, run_id, user),
        rating=body.rating,
        comment=body.comment,
        message_id=body.message_id,
    )
    await put_feedback(deerflow.storage.store, rating)
    return json_response(asdict(rating))


@router.get("/threads/{thread_id}/runs/{run_id}/feedback", **answers("list[Feedback]", 404))
async def list_feedback(
    thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """List the ratings of a run, oldest first."""
    await known_run(deerflow, thread_id, run_id, user)
    return json_response(
        [asdict(rating) for _, rating in await feedback_of(deerflow.storage.store, thread_id, run_id)]
    )


@router.get("/threads/{thread_id}/runs/{run_id}/feedback/stats", **answers("FeedbackStats", 404))
async def get_feedback_stats(
    thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Count the positive and negative ratings of a run."""
    await known_run(deerflow, thread_id, run_id, user)
    ratings = [rating.rating for _, rating in await feedback_of(deerflow.storage.store, thread_id, run_id)]
    return json_response(
        {"run_id": run_id, "total": len(ratings), "positive": ratings.count(1), "negative": ratings.count(-1)}
    )


@router.delete("/threads/{thread_id}/runs/{run_id}/feedback/{feedback_id}", **answers("Done", 404))
async def delete_feedback_by_id(
    thread_id: ThreadPath, run_id: str, feedback_id: str, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Delete one rating of a run by its id."""
    await known_run(deerflow, thread_id, run_id, user)
    ratings = await feedback_of(deerflow.storage.store, thread_id, run_id)
    key = next((key for key, rating in ratings if rating.feedback_id == feedback_id), feedback_id)
    return await _deleted(deerflow, thread_id, run_id, key)


@router.get("/runs/{run_id}/feedback", **answers("list[Feedback]", 404))
async def list_feedback_of_run(run_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the ratings of a run by the run's id alone, oldest first."""
    run = await deerflow.runs.get(run_id)
    await owned_thread(deerflow, run.thread_id, user)
    return json_response(
        [asdict(rating) for _, rating in await feedback_of(deerflow.storage.store, run.thread_id, run_id)]
    )


async def _deleted(deerflow: DeerFlow, thread_id: str, run_id: str, key: str) -> Response:
    if key not in dict(await feedback_of(deerflow.storage.store, thread_id, run_id)):
        raise NotFoundError("feedback", run_id if key == OWN else key)
    await delete_feedback(deerflow.storage.store, thread_id, run_id, key)
    return json_response({"success": True})


def _check(body: FeedbackUpsert) -> None:
    if body.rating not in (1, -1):
        raise InvalidInputError(f"rating must be 1 or -1, not {body.rating}")


def _new_rating(thread_id: str, run_id: str, user: str) -> RunFeedback:
    more: dict[str, Any] = {"rating": 1, "created_at": stamp(datetime.now(UTC))}
    return RunFeedback(new_id(), run_id, thread_id, user, **more)


approvals_router = APIRouter(tags=["approvals"])


@approvals_router.get("/allowed-calls", **answers("AllowedCallRows"))
async def list_allowed_calls(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the tool calls that run without approval because the user allowed them for good.

    Answering a question with "always allow" creates an entry.
    """
    allowed = await AllowedCalls(deerflow.storage.store, user).all()
    ids = list({each.thread_id for each in allowed})
    threads = await deerflow.storage.threads.search(
        ThreadQuery(user_id=user, ids=ids, limit=max(len(ids), 1))
    )
    titles = {thread.id: thread.title or "" for thread in threads}
    rows = [{**asdict(each), "thread_title": titles.get(each.thread_id, "")} for each in allowed]
    return json_response({"allowed_calls": rows})


@approvals_router.delete("/allowed-calls/{allowed_id}", **answers(None, 404, status=204))
async def revoke_allowed_call(allowed_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Revoke the permission of a tool call, so that it needs approval again."""
    await AllowedCalls(deerflow.storage.store, user).revoke(allowed_id)
    return Response(status_code=204)
