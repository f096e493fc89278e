"""Browser routes of a server without browser control: a clear refusal of every request."""

from fastapi import APIRouter, HTTPException, WebSocket
from starlette.responses import Response

from deerflow.gateway.deps import ThreadPath
from deerflow.gateway.openapi import refuses

router = APIRouter(prefix="/threads/{thread_id}/browser", tags=["browser"])

_OFF = "Browser control is not available on this server."
_CLOSE_UNAVAILABLE = 4501


@router.post("/navigate", operation_id="navigate_browser", **refuses(501, {"detail": _OFF}))
async def navigate(thread_id: ThreadPath) -> Response:
    """Open a page in the thread's browser: always refused.

    Browser control is not available on this server, so this always answers 501.
    """
    raise HTTPException(501, _OFF)


@router.websocket("/stream")
async def stream(socket: WebSocket, thread_id: str) -> None:
    """Show the thread's browser."""
    await socket.accept()  # a page can read the close code only of a socket that was open
    await socket.send_json({"type": "error", "message": _OFF})
    await socket.close(_CLOSE_UNAVAILABLE, _OFF)
