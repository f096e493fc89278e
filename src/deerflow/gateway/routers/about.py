"""What this server is and has: health, models, features, assistants, the default user."""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.domain import DEFAULT_USER, LEAD_AGENT
from deerflow.errors import NotFoundError
from deerflow.gateway.deps import House, json_response
from deerflow.runtime.shapes import model_out

router = APIRouter(tags=["about"])
root_router = APIRouter(tags=["about"])

_EPOCH = "2026-01-01T00:00:00+00:00"
"""The built-in assistant was not created at any moment; clients want one."""


@root_router.get("/health")
async def health(house: House) -> Response:
    """Tell whether the server works, and what does not."""
    await house.refresh()
    return json_response({"status": "healthy", "service": "deer-flow-gateway", **house.health()})


@router.get("/ok")
async def ok() -> Response:
    """Answer: LangGraph clients ask whether anybody is there."""
    return json_response({"ok": True})


@router.get("/info")
async def info() -> Response:
    """Return the version and what kind of server this is."""
    return json_response({"version": version("deerflow"), "flags": {"assistants": True, "crons": False}})


@router.get("/models")
async def list_models(house: House) -> Response:
    """List the chat models."""
    await house.refresh()
    models = [model_out(model) for model in map(house.models.get, house.models.names)]
    return json_response({"models": models, "token_usage": {"enabled": house.settings.token_usage.enabled}})


@router.get("/models/{name}")
async def get_model(name: str, house: House) -> Response:
    """Return one chat model."""
    await house.refresh()
    return json_response(model_out(house.models.get(name)))


@router.get("/features")
async def features(house: House) -> Response:
    """Tell which parts of the contract are switched on."""
    return json_response(
        {
            "agents_api": {"enabled": False},
            "browser_control": {"enabled": False},
            "mcp_tasks": {"enabled": False},
        }
    )


@router.post("/assistants/search")
async def search_assistants() -> Response:
    """List the assistants."""
    return json_response([_lead_assistant()])


@router.get("/assistants/{assistant_id}")
async def get_assistant(assistant_id: str) -> Response:
    """Return an assistant."""
    return json_response(_assistant(assistant_id))


@router.get("/assistants/{assistant_id}/graph")
async def assistant_graph(assistant_id: str) -> Response:
    """Return an assistant's graph; its inside is nobody's contract."""
    return json_response({"graph_id": _assistant(assistant_id)["graph_id"], "nodes": [], "edges": []})


@router.get("/assistants/{assistant_id}/schemas")
async def assistant_schemas(assistant_id: str) -> Response:
    """Return the shapes that an assistant takes and gives."""
    schemas: dict[str, Any] = {
        f"{name}_schema": {} for name in ("input", "output", "state", "config", "context")
    }
    return json_response({"graph_id": _assistant(assistant_id)["graph_id"], **schemas})


@router.get("/v1/auth/me")
async def me() -> Response:
    """Return the user that acts when nobody has to log in."""
    return json_response(
        {
            "id": DEFAULT_USER,
            "email": "default@test.local",
            "system_role": "admin",
            "needs_setup": False,
            "oauth_provider": None,
        }
    )


@router.get("/v1/auth/setup-status")
async def setup_status() -> Response:
    """Tell that nothing is left to set up."""
    return json_response({"needs_setup": False, "registration_enabled": False})


@router.get("/v1/auth/providers")
async def providers() -> Response:
    """List the identity providers: none without login."""
    return json_response({"providers": []})


def _assistant(assistant_id: str) -> dict[str, Any]:
    if assistant_id != LEAD_AGENT:
        raise NotFoundError("assistant", assistant_id)
    return _lead_assistant()


def _lead_assistant() -> dict[str, Any]:
    return {
        "assistant_id": LEAD_AGENT,
        "graph_id": LEAD_AGENT,
        "name": LEAD_AGENT,
        "description": "Plans, delegates, works with files and a shell, and answers.",
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "created_at": _EPOCH,
        "updated_at": _EPOCH,
        "version": 1,
    }
