"""Serves the API documentation at `/docs` and `/redoc`, with all assets from this server."""

import asyncio
from functools import cache

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from deerflow.runtime import to_json

_ASSETS = "docs/assets"
"""Relative, like the URL of the OpenAPI document: the pages also work below a proxy's prefix."""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; frame-ancestors 'none'; base-uri 'none'"
)


def serve_docs(app: FastAPI) -> None:
    """Add both pages, the assets of the package `fastapi-offline`, and the OpenAPI document."""
    app.mount(f"/{_ASSETS}", StaticFiles(packages=[("fastapi_offline", "static")]), name="docs-assets")

    @cache
    def document() -> bytes:
        return to_json(app.openapi())

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        # Built at the first request, which takes a second.
        return Response(await asyncio.to_thread(document), media_type="application/json")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        page = get_swagger_ui_html(
            openapi_url="openapi.json",
            title=app.title,
            swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{_ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{_ASSETS}/favicon.png",
            # Otherwise a page that is not on loopback sends its URL to swagger.io.
            swagger_ui_parameters={"validatorUrl": None},
        )
        return _closed(page)

    @app.get("/redoc", include_in_schema=False)
    async def redoc() -> Response:
        page = get_redoc_html(
            openapi_url="openapi.json",
            title=app.title,
            redoc_js_url=f"{_ASSETS}/redoc.standalone.js",
            redoc_favicon_url=f"{_ASSETS}/favicon.png",
            with_google_fonts=False,
        )
        return _closed(page)


def _closed(page: Response) -> Response:
    page.headers["Content-Security-Policy"] = _POLICY
    return page
