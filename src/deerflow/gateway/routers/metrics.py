"""Route for Prometheus metrics."""

from importlib import import_module

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import CurrentApp
from deerflow.gateway.openapi import answers

router = APIRouter(tags=["about"])


@router.get("/metrics", operation_id="get_metrics", **answers("metrics", 404))
async def metrics(deerflow: CurrentApp) -> Response:
    """Return counters and gauges of this process in the text format of Prometheus.

    The same is at `/metrics`. Answers 404 while `metrics.enabled` is false in the settings.
    """
    if not deerflow.settings.metrics.enabled:
        raise NotFoundError("page", "/metrics (switched off by metrics.enabled)")
    # Imported on request: loading the library takes longer than a server may take to start.
    exposition = import_module("deerflow.observability.exposition")
    return Response(exposition.render(deerflow.watch.meters), media_type=exposition.CONTENT_TYPE)
