"""Chat services over HTTP while none can be connected: empty lists, and clear refusals."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import json_response

router = APIRouter(prefix="/channels", tags=["channels"])


@router.get("/providers")
async def list_providers() -> Response:
    """List the chat services that can be connected; pages hide the group while it is not enabled."""
    return json_response({"enabled": False, "providers": []})


@router.get("/connections")
async def list_connections() -> Response:
    """List the user's connected accounts."""
    return json_response({"connections": []})


@router.delete("/connections/{connection_id}")
async def disconnect(connection_id: str) -> Response:
    """Disconnect an account."""
    raise NotFoundError("channel connection", connection_id[:80])


@router.post("/{provider}/connect")
async def connect(provider: str) -> Response:
    """Connect an account of the user."""
    _refuse(provider)


@router.post("/{provider}/runtime-config")
async def set_runtime_config(provider: str) -> Response:
    """Set a service's credentials."""
    _refuse(provider)


@router.delete("/{provider}/runtime-config")
async def delete_runtime_config(provider: str) -> Response:
    """Delete a service's credentials."""
    _refuse(provider)


def _refuse(provider: str) -> NoReturn:
    raise HTTPException(503, f"{provider[:80]} cannot be connected: this server connects to no chat service")
