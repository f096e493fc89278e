"""Routes for background tasks of MCP servers: none exist, since none are started yet."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import ThreadPath, json_response
from deerflow.gateway.openapi import answers, refuses

router = APIRouter(prefix="/threads/{thread_id}/mcp-tasks", tags=["mcp tasks"])

_NONE = {"detail": "MCP task 'm1' not found", "code": "not_found"}


@router.get("", operation_id="list_mcp_tasks", **answers("list[McpTask]"))
async def list_tasks(thread_id: ThreadPath, limit: Annotated[int, Query(ge=1, le=100)] = 50) -> Response:
    """List a thread's background tasks of MCP servers: none, since this server starts none."""
    return json_response([])


@router.get("/{task_id}", operation_id="get_mcp_task", **refuses(404, _NONE))
async def get_task(thread_id: ThreadPath, task_id: str) -> Response:
    """Return a background task of an MCP server: always refused.

    This server starts none, so this always answers 404.
    """
    raise NotFoundError("MCP task", task_id[:80])


@router.post("/{task_id}/cancel", operation_id="cancel_mcp_task", **refuses(404, _NONE))
async def cancel_task(thread_id: ThreadPath, task_id: str) -> Response:
    """Cancel a background task of an MCP server: always refused.

    This server starts none, so this always answers 404.
    """
    raise NotFoundError("MCP task", task_id[:80])
