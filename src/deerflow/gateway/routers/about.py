"""What this server is and has: health, models, features."""

from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.gateway.deps import House, json_response
from deerflow.runtime.shapes import model_out

router = APIRouter(tags=["about"])
root_router = APIRouter(tags=["about"])


@root_router.get("/health")
async def health(house: House) -> Response:
    """Tell whether the server works, and what does not."""
    return json_response({"status": "healthy", "service": "deer-flow-gateway", **house.health()})


@router.get("/ok")
async def ok() -> Response:
    """Answer: LangGraph clients ask whether anybody is there."""
    return json_response({"ok": True})


@router.get("/info")
async def info(house: House) -> Response:
    """Return the version and what kind of server this is."""
    flags = {"assistants": True, "crons": house.settings.scheduler.enabled, "store": True}
    return json_response({"version": version("deerflow"), "flags": flags})


@router.get("/models")
async def list_models(house: House) -> Response:
    """List the chat models."""
    models = [model_out(model) for model in map(house.models.get, house.models.names)]
    return json_response({"models": models, "token_usage": {"enabled": house.settings.token_usage.enabled}})


@router.get("/models/{name}")
async def get_model(name: str, house: House) -> Response:
    """Return one chat model."""
    return json_response(model_out(house.models.get(name)))


@router.get("/features")
async def features(house: House) -> Response:
    """Tell which parts of the contract are switched on."""
    return json_response(
        {
            "agents_api": {"enabled": house.settings.agents_api.enabled},
            "browser_control": {"enabled": False},
            "mcp_tasks": {"enabled": False},
        }
    )
