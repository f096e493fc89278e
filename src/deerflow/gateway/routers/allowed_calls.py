"""Routes to list and revoke tool calls that run without approval; approvals in a run create them."""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.agents.allowed_calls import AllowedCalls
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response
from deerflow.gateway.openapi import answers
from deerflow.storage import ThreadQuery

router = APIRouter(tags=["approvals"])


@router.get("/allowed-calls", **answers("AllowedCallRows"))
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


@router.delete("/allowed-calls/{allowed_id}", **answers(None, 404, status=204))
async def revoke_allowed_call(allowed_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Revoke the permission of a tool call, so that it needs approval again."""
    await AllowedCalls(deerflow.storage.store, user).revoke(allowed_id)
    return Response(status_code=204)
