"""Routes for the server itself: health, version, models, features, metrics."""

from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import CurrentApp, json_response
from deerflow.gateway.openapi import answers
from deerflow.runtime.json_views import model_out

router = APIRouter(tags=["about"])
root_router = APIRouter(tags=["about"])
metrics_router = APIRouter(tags=["about"])


@root_router.get("/health", **answers("Health"))
async def get_health(deerflow: CurrentApp) -> Response:
    """Tell whether the server works, and which configured things do not.

    Load balancers and container platforms call this. The answer names the models, the state of the sandbox
    and every setting that has a problem.
    """
    return json_response({"status": "healthy", "service": "deer-flow-gateway", **deerflow.health()})


@router.get("/ok", **answers("Ok"))
async def check_ok() -> Response:
    """Confirm that the server answers.

    LangGraph's clients call this before they connect. It reads nothing, so it says nothing about models or
    storage: `GET /health` does.
    """
    return json_response({"ok": True})


@router.get("/info", **answers("ServerInfo"))
async def get_info(deerflow: CurrentApp) -> Response:
    """Return the version of the server and which parts of LangGraph's API are on."""
    flags = {"assistants": True, "crons": deerflow.settings.scheduler.enabled, "store": True}
    return json_response({"version": version("deerflow"), "flags": flags})


@router.get("/models", **answers("ModelList"))
async def list_models(deerflow: CurrentApp) -> Response:
    """List the chat models of the settings.

    Keys and addresses of providers are not part of the answer. A run names a model in `context.model_name`;
    without one it uses the first.
    """
    models = [model_out(model) for model in map(deerflow.models.get, deerflow.models.names)]
    return json_response(
        {"models": models, "token_usage": {"enabled": deerflow.settings.token_usage.enabled}}
    )


@router.get("/models/{name}", **answers("ChatModel", 404))
async def get_model(name: str, deerflow: CurrentApp) -> Response:
    """Return one chat model of the settings by its name."""
    return json_response(model_out(deerflow.models.get(name)))


@router.get("/features", **answers("Features"))
async def get_features(deerflow: CurrentApp) -> Response:
    """Tell which optional features are on, so that pages show only those.

    The answer follows an edit of the settings at once.
    """
    return json_response(
        {
            "agents_api": {"enabled": deerflow.settings.agents_api.enabled},
            "browser_control": {"enabled": False},
            "mcp_tasks": {"enabled": False},
        }
    )


@metrics_router.get("/metrics", **answers("metrics", 404))
async def get_metrics(deerflow: CurrentApp) -> Response:
    """Return counters and gauges of this process in the text format of Prometheus.

    The same is at `/metrics`. Answers 404 while `metrics.enabled` is false in the settings.
    """
    if not deerflow.settings.metrics.enabled:
        raise NotFoundError("page", "/metrics (switched off by metrics.enabled)")
    from deerflow.observability import exposition  # noqa: PLC0415 - loading it would delay the server's start

    return Response(exposition.render(deerflow.watch.meters), media_type=exposition.CONTENT_TYPE)
