"""Routes for the messages of a thread or run, in pages, including those that a summary has replaced."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.errors import NotFoundError
from deerflow.gateway.deps import (
    CurrentApp,
    CurrentUser,
    ThreadPath,
    contract_of,
    json_response,
    known_run,
    owned_thread,
)
from deerflow.gateway.openapi import answers
from deerflow.runtime.approval_cards import cards_of, waiting_calls
from deerflow.runtime.conversation import ThreadMessage, thread_messages
from deerflow.runtime.feedback import OWN, feedback_of
from deerflow.runtime.json_views import stamp
from deerflow.runtime.serialization import visible_fields

router = APIRouter(tags=["messages"])

_EVENT_TYPES = {"human": "llm.human.input", "ai": "llm.ai.response", "tool": "llm.tool.result"}


@dataclass(frozen=True, slots=True)
class MessagePageQuery:
    """Pagination parameters of the query."""

    limit: Annotated[int, Query(ge=1, le=200)] = 50
    before_seq: Annotated[int | None, Query(ge=0)] = None
    after_seq: Annotated[int | None, Query(ge=0)] = None


PageParameters = Annotated[MessagePageQuery, Depends()]


@router.get("/threads/{thread_id}/messages/page", **answers("MessagePage", 404))
async def page_thread_messages(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, page: PageParameters
) -> Response:
    """Return a page of a thread's messages, oldest first: the newest, or those before `before_seq`.

    Messages that a summary has replaced for the model are part of it. `next_before_seq` is the `before_seq`
    of the next, older page. A thread that does not exist yet has an empty page, or answers 404 with
    `compatibility: langgraph`.
    """
    if page.after_seq is not None:
        raise HTTPException(422, "pages go back from the newest message: send before_seq, not after_seq")
    try:
        thread = await owned_thread(deerflow, thread_id, user)
    except NotFoundError:  # frontends ask before the first message creates the thread
        if not contract_of(deerflow).missing_is_empty:
            raise
        return json_response({"data": [], "has_more": False, "next_before_seq": None})
    rows, has_more = await _rows(deerflow, thread_id, page)
    if page.before_seq is None and thread.interrupts:
        rows += await _cards(deerflow, thread_id, rows)
    next_before = rows[0]["seq"] if has_more and rows else None
    return json_response({"data": rows, "has_more": has_more, "next_before_seq": next_before})


@router.get("/threads/{thread_id}/messages", **answers("list[MessageRow]", 404))
async def list_thread_messages(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, page: PageParameters
) -> Response:
    """List messages of a thread, oldest first: the newest, or those before or after a number."""
    await owned_thread(deerflow, thread_id, user)
    rows, _ = await _rows(deerflow, thread_id, page)
    return json_response(rows)


@router.get("/threads/{thread_id}/runs/{run_id}/messages", **answers("RunMessages", 404))
async def list_run_messages(
    thread_id: ThreadPath, run_id: str, user: CurrentUser, deerflow: CurrentApp, page: PageParameters
) -> Response:
    """List the messages of one run, oldest first."""
    await known_run(deerflow, thread_id, run_id, user)
    rows, has_more = await _rows(deerflow, thread_id, page, run_id=run_id)
    return json_response({"data": rows, "has_more": has_more})


@router.get("/runs/{run_id}/messages", **answers("RunMessages", 404))
async def list_messages_of_run(
    run_id: str, user: CurrentUser, deerflow: CurrentApp, page: PageParameters
) -> Response:
    """List the messages of a run by the run's id alone, oldest first."""
    run = await deerflow.runs.get(run_id)
    return await list_run_messages(run.thread_id, run_id, user, deerflow, page)


async def _rows(
    deerflow: DeerFlow, thread_id: str, page: MessagePageQuery, *, run_id: str | None = None
) -> tuple[list[dict[str, Any]], bool]:
    """Return rows, oldest first, and whether there are more."""
    found: list[tuple[ThreadMessage, bool]] = []
    async for item, is_last in _mark_run_ends(thread_messages(deerflow.storage.checkpoints, thread_id)):
        if page.after_seq is not None and item.seq <= page.after_seq:
            break
        if (page.before_seq is None or item.seq < page.before_seq) and run_id in (None, item.run_id):
            found.append((item, is_last))
        if page.after_seq is None and len(found) > page.limit:
            break
    chosen = found[: page.limit] if page.after_seq is None else found[-page.limit :]
    ratings = {
        rating.run_id: {"feedback_id": rating.feedback_id, "rating": rating.rating, "comment": rating.comment}
        for key, rating in await feedback_of(deerflow.storage.store, thread_id)
        if key == OWN
    }
    durations = await _durations(deerflow, [item for item, is_last in chosen if is_last])
    rows = [
        _row(thread_id, item)
        if not is_last
        else _row(thread_id, item, ratings.get(item.run_id or ""), durations.get(item.run_id or ""))
        for item, is_last in reversed(chosen)
    ]
    return rows, len(found) > page.limit


async def _cards(deerflow: DeerFlow, thread_id: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for the calls that wait for approval, as questions after the newest message."""
    snapshot = await deerflow.state.latest(thread_id)
    if snapshot is None:
        return []
    cards = cards_of(waiting_calls(snapshot), snapshot.values.get("messages", ()))
    start: dict[str, Any] = {"seq": 0, "run_id": None, "created_at": snapshot.created_at}
    last = rows[-1] if rows else start
    about = {"thread_id": thread_id, "run_id": last["run_id"], "created_at": last["created_at"]}
    return [
        {
            **about,
            "seq": last["seq"] + number,
            "event_type": _EVENT_TYPES["tool"],
            "category": "message",
            "content": dict(visible_fields(card)),
            "metadata": {"caller": "lead_agent"},
        }
        for number, card in enumerate(cards, 1)
    ]


async def _mark_run_ends(items: AsyncIterator[ThreadMessage]) -> AsyncIterator[tuple[ThreadMessage, bool]]:
    """Mark the last answer of each run: it carries the run's duration and feedback."""
    ended: set[str | None] = {None}
    async for item in items:
        is_last = item.message.type == "ai" and item.run_id not in ended
        if is_last:
            ended.add(item.run_id)
        yield item, is_last


async def _durations(deerflow: DeerFlow, items: Sequence[ThreadMessage]) -> dict[str, int]:
    """Return the durations of ended runs in seconds."""
    found: dict[str, int] = {}
    for run_id in {item.run_id for item in items if item.run_id}:
        try:
            run = await deerflow.runs.get(run_id)
        except NotFoundError:  # a run of the thread that this one was copied from, or deleted
            continue
        if run.status.is_terminal:
            found[run_id] = round((run.updated_at - run.created_at).total_seconds())
    return found


def _row(
    thread_id: str, item: ThreadMessage, feedback: dict[str, Any] | None = None, duration: int | None = None
) -> dict[str, Any]:
    content = dict(visible_fields(item.message))
    if duration is not None:
        content["additional_kwargs"] = {**item.message.additional_kwargs, "turn_duration": duration}
    row = {
        "thread_id": thread_id,
        "run_id": item.run_id,
        "seq": item.seq,
        "event_type": _EVENT_TYPES.get(item.message.type, "message"),
        "category": "message",
        "content": content,
        "metadata": {"caller": "lead_agent"},
        "created_at": stamp(item.at),
    }
    return row if feedback is None else {**row, "feedback": feedback}
