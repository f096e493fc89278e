"""Serves the browser page, or says how to get it."""

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope
from typing_extensions import override

STATIC = Path(__file__).parent / "static"

_MISSING = """<!doctype html><meta charset="utf-8"><title>DeerFlow</title>
<body style="font: 16px/1.5 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>DeerFlow is running</h1>
<p>The API answers here (<a href="/docs">/docs</a>), but the page is not built.
Install Node.js 20 or newer with npm, then run <code>make install</code> and reload.</p>"""


def serve_page(app: FastAPI, static: Path = STATIC) -> None:
    """Mount the page at `/`, behind everything else."""
    app.mount("/", _Page(directory=static, html=True, check_dir=False), name="page")


class _Page(StaticFiles):
    """Static files; any other address of the page is the page itself, since it routes by address."""

    @override
    async def check_config(self) -> None:
        """Start without the page's folder too."""

    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        # Looked for each time, so that a page that is built meanwhile is there after a reload.
        if path == "." and not (Path(str(self.directory)) / "index.html").is_file():
            return HTMLResponse(_MISSING)
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code != 404 or path.startswith("api") or "." in Path(path).name:
                raise
            response = await super().get_response("index.html", scope)
        if path.startswith("assets/"):  # their names carry a hash of their contents
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        else:
            response.headers["Cache-Control"] = "no-cache"
        return response
