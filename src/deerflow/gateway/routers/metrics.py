"""Numbers for Prometheus."""

from importlib import import_module

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import House

router = APIRouter(tags=["about"])


@router.get("/metrics")
async def metrics(house: House) -> Response:
    """Return what happened in this process since it started, as Prometheus reads it."""
    if not house.settings.metrics.enabled:
        raise NotFoundError("page", "/metrics (switched off by metrics.enabled)")
    # Loaded when somebody asks: the library takes longer to load than a server may take to start.
    exposition = import_module("deerflow.observability.exposition")
    return Response(exposition.render(house.watch.meters), media_type=exposition.CONTENT_TYPE)
