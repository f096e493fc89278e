"""The goal of a thread over HTTP: there is none, since nothing here goes on by itself towards one."""

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.gateway.deps import ThreadPath, json_response

router = APIRouter(tags=["goals"])


@router.get("/threads/{thread_id}/goal")
async def get_goal(thread_id: ThreadPath) -> Response:
    """Tell that a thread has no goal; also of a thread that a client is only about to make."""
    return json_response({"goal": None})
