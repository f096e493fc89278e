"""Channel routes of a server without chat services: empty lists and clear refusals."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import json_response
from deerflow.gateway.openapi import answers, refuses

router = APIRouter(prefix="/channels", tags=["channels"])


def _off(provider: str) -> str:
    return f"{provider} cannot be connected: this server connects to no chat service"


@router.get("/providers", operation_id="list_channel_providers", **answers("ChannelProviders"))
async def list_providers() -> Response:
    """List the chat services that can be connected: none.

    Pages hide the whole group while `enabled` is false.
    """
    return json_response({"enabled": False, "providers": []})


@router.get("/connections", operation_id="list_channel_connections", **answers("ChannelConnections"))
async def list_connections() -> Response:
    """List the user's connected accounts of chat services: none."""
    return json_response({"connections": []})


@router.delete(
    "/connections/{connection_id}",
    operation_id="disconnect_channel",
    **refuses(404, {"detail": "channel connection 'c1' not found", "code": "not_found"}),
)
async def disconnect(connection_id: str) -> Response:
    """Disconnect an account of a chat service: always refused.

    This server connects to no chat service, so this always answers 404.
    """
    raise NotFoundError("channel connection", connection_id[:80])


@router.post("/{provider}/connect", operation_id="connect_channel", **refuses(503, {"detail": _off("slack")}))
async def connect(provider: str) -> Response:
    """Connect an account of a chat service: always refused.

    This server connects to no chat service, so this always answers 503.
    """
    _refuse(provider)


@router.post(
    "/{provider}/runtime-config", operation_id="set_channel_config", **refuses(503, {"detail": _off("slack")})
)
async def set_runtime_config(provider: str) -> Response:
    """Set the credentials of a chat service: always refused.

    This server connects to no chat service, so this always answers 503.
    """
    _refuse(provider)


@router.delete(
    "/{provider}/runtime-config",
    operation_id="delete_channel_config",
    **refuses(503, {"detail": _off("slack")}),
)
async def delete_runtime_config(provider: str) -> Response:
    """Delete the credentials of a chat service: always refused.

    This server connects to no chat service, so this always answers 503.
    """
    _refuse(provider)


def _refuse(provider: str) -> NoReturn:
    raise HTTPException(503, _off(provider[:80]))
