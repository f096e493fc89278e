"""Tasks that MCP servers work on in the background, over HTTP: none, since no server is given any yet."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import ThreadPath, json_response

router = APIRouter(prefix="/threads/{thread_id}/mcp-tasks", tags=["mcp tasks"])


@router.get("")
async def list_tasks(thread_id: ThreadPath, limit: Annotated[int, Query(ge=1, le=100)] = 50) -> Response:
    """List a thread's tasks, newest first."""
    return json_response([])


@router.get("/{task_id}")
async def get_task(thread_id: ThreadPath, task_id: str) -> Response:
    """Return one task."""
    raise NotFoundError("MCP task", task_id[:80])


@router.post("/{task_id}/cancel")
async def cancel_task(thread_id: ThreadPath, task_id: str) -> Response:
    """Ask for the end of a task."""
    raise NotFoundError("MCP task", task_id[:80])
