"""Serves the web page, or instructions to build it, and the API documentation at `/docs` and `/redoc`."""

import asyncio
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from deerflow.runtime import to_json

STATIC = Path(__file__).parent / "static"
_NAME = "page"
_FOLLOWING = ("/stream", "/join")
"""Suffixes of paths that stream until a run ends and may cancel it: HEAD must not call them."""
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; object-src 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

_MISSING = """<!doctype html><meta charset="utf-8"><title>DeerFlow</title>
<body style="font: 16px/1.5 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>DeerFlow is running</h1>
<p>The API answers here (<a href="/docs">/docs</a>), but the page is not built.
Install Node.js 20.19 or newer with npm, then run <code>make install</code> and reload.</p>"""


def serve_page(app: FastAPI, static: Path = STATIC) -> None:
    """Mount the page at `/`, after all other routes."""
    app.mount("/", _Page(directory=static, html=True, check_dir=False), name=_NAME)


class _Page(StaticFiles):
    """Static files; any other path returns the page itself, which routes on the client side.

    API requests that no route matches arrive here too and get an API error.
    """

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if is_head and _is_api(path := self.get_path(scope)) and not path.endswith(_FOLLOWING):
            # Handled as GET; the server omits the body.
            await scope["app"].router({**scope, "method": "GET"}, receive, send)
            return
        await super().__call__(scope, receive, send)

    @override
    async def check_config(self) -> None:
        """Allow the folder to be missing at startup."""

    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        if _is_api(path):
            raise _refusal(scope)
        # Checked on every request, so that a page built meanwhile appears after a reload.
        if path == "." and not (Path(str(self.directory)) / "index.html").is_file():
            return _framed_by_nobody(HTMLResponse(_MISSING))
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code != 404 or "." in Path(path).name:
                raise
            response = await super().get_response("index.html", scope)
        if path.startswith("assets/"):  # their names carry a hash of their contents
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        else:
            response.headers["Cache-Control"] = "no-cache"
        return _framed_by_nobody(response)


def _framed_by_nobody(response: Response) -> Response:
    """Forbid other sites to embed the page in a frame (clickjacking)."""
    response.headers.update(_HEADERS)
    return response


def _is_api(path: str) -> bool:
    return Path(path).parts[:1] == ("api",)


def _refusal(scope: Scope) -> HTTPException:
    """Return 405 if another method matches the path, otherwise 404."""
    routes = [route for route in scope["app"].router.routes if getattr(route, "name", None) != _NAME]
    allowed = [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    return HTTPException(405, headers={"Allow": ", ".join(allowed)}) if allowed else HTTPException(404)


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
