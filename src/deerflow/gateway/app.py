"""The ASGI app: every route of the API, around one open DeerFlow."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from typing_extensions import override

from deerflow.app import DeerFlow
from deerflow.gateway.background import in_background, run_scheduler
from deerflow.gateway.errors import handle_errors
from deerflow.gateway.guard import LocalGuard, Network
from deerflow.gateway.limits import BodyLimit, Bound
from deerflow.gateway.openapi import build_document, operation_id
from deerflow.gateway.page import serve_docs, serve_page
from deerflow.gateway.pagination import NEXT_PAGE, TOTAL
from deerflow.gateway.routers import (
    about,
    agents,
    assistants,
    branches,
    crons,
    custom_skills,
    feedback,
    files,
    mcp,
    memory,
    messages,
    not_built,
    protocol,
    published_skills,
    run_events,
    run_queries,
    runs,
    scheduled_tasks,
    skill_secrets,
    skills,
    states,
    store,
    subagents,
    suggestions,
    threads,
    usage,
)
from deerflow.skills.archive import MAX_ARCHIVE_BYTES

PREFIXES = ("/api", "/api/langgraph")
"""LangGraph's clients use the second, for which DeerFlow 2 needed a proxy."""
_MOST_BYTES = 20 * 1024 * 1024
_FORM_BYTES = 1024 * 1024
_MOST_VALUES = 100_000
_UPLOADS = re.compile(r"/api(?:/langgraph)?/threads/[^/]+/uploads/?")
_ARCHIVES = re.compile(r"/api(?:/langgraph)?/skills/install/?")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Network-facing options of the gateway."""

    checks_host: bool = True
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may use the API."""
    trusted_proxies: tuple[Network, ...] = ()
    """Peers whose X-Forwarded-Host is trusted."""
    has_docs: bool = True


class Gateway(FastAPI):
    """The ASGI app; its OpenAPI document is built once, at the first request for it."""

    @override
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = build_document(self.routes, title=self.title, version=self.version)
        return self.openapi_schema


def create_app(
    opening: Callable[[], AbstractAsyncContextManager[DeerFlow]], options: GatewayOptions | None = None
) -> FastAPI:
    """Create the ASGI app; `opening` opens DeerFlow when the server starts."""
    options = options or GatewayOptions()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opening() as deerflow:
            app.state.deerflow = deerflow
            webhooks = in_background(deerflow.webhooks.run(), "webhooks")
            async with run_scheduler(deerflow) as app.state.scheduler, webhooks:
                yield

    # FastAPI's documentation pages load scripts from a CDN; ours do not.
    app = Gateway(title="DeerFlow", version=version("deerflow"), lifespan=lifespan, openapi_url=None)
    app.router.routes.extend(_routes())
    handle_errors(app)
    if options.has_docs:
        serve_docs(app)
    serve_page(app)
    _add_middlewares(app, options)
    return app


@cache
def _routes() -> Sequence[BaseRoute]:
    """Return every route of the API, built once per process: they are the same for every app.

    A match is tried on each route at once. Otherwise the first request would build their lazy parts and block
    the event loop.
    """
    api = FastAPI(openapi_url=None, generate_unique_id_function=operation_id)
    _add_routes(api)
    for prefix in PREFIXES:
        scope = {"type": "http", "method": "GET", "path": f"{prefix}/-", "root_path": "", "headers": []}
        for route in api.router.routes:
            route.matches(scope)
    return tuple(api.router.routes)


def _add_routes(app: FastAPI) -> None:
    # Runs come first, in their own router: routes are matched in order, and that delays the first token.
    app.include_router(runs.router, prefix=PREFIXES[0])
    app.include_router(runs.router, prefix=PREFIXES[1], include_in_schema=False)
    app.include_router(about.root_router)
    app.include_router(about.metrics_router, include_in_schema=False)
    app.include_router(published_skills.router)
    api = APIRouter()
    for router in (
        about.router,
        agents.router,
        feedback.approvals_router,
        assistants.router,
        not_built.auth_router,
        branches.router,
        not_built.browser_router,
        not_built.channels_router,
        crons.router,
        feedback.router,
        states.goals_router,
        not_built.lark_router,
        mcp.router,
        not_built.mcp_tasks_router,
        memory.router,
        messages.router,
        run_events.router,
        scheduled_tasks.router,
        custom_skills.router,  # before those of all skills, whose names match any path
        skill_secrets.router,
        skills.router,
        threads.router,
        states.router,
        run_queries.router,
        protocol.router,
        store.router,
        subagents.teams_router,
        files.router,
        subagents.tasks_router,
        usage.compact_router,
        suggestions.router,
        usage.router,
        about.metrics_router,
    ):
        # Flattened into one router: a nested router would be searched twice.
        api.routes.extend(router.routes)
    app.include_router(api, prefix=PREFIXES[0])
    app.include_router(api, prefix=PREFIXES[1], include_in_schema=False)


def _add_middlewares(app: FastAPI, options: GatewayOptions) -> None:
    """Add the middlewares; the last one added is the outermost."""

    def bound(method: str, path: str) -> Bound:
        if method == "POST" and _UPLOADS.fullmatch(path):
            deerflow: DeerFlow = app.state.deerflow
            return Bound(deerflow.settings.uploads.max_total_size + _FORM_BYTES, _MOST_VALUES)
        if method == "POST" and _ARCHIVES.fullmatch(path):
            return Bound(MAX_ARCHIVE_BYTES + _FORM_BYTES, _MOST_VALUES, archive_types=skills.ARCHIVE_TYPES)
        return Bound(_MOST_BYTES, _MOST_VALUES)

    app.add_middleware(BodyLimit, bound=bound)
    if options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.origins),
            allow_credentials=True,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Content-Location", "Location", NEXT_PAGE, TOTAL],
        )
    app.add_middleware(
        LocalGuard,
        checks_host=options.checks_host,
        origins=options.origins,
        trusted_proxies=options.trusted_proxies,
    )
