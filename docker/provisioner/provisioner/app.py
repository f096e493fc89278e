"""The HTTP API: who may ask, what may be asked, and what comes back."""

import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Path, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator

from provisioner.cluster import Cluster, ClusterError, SandboxState
from provisioner.manifests import Wish
from provisioner.settings import Settings

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MAX_VARIABLES = 64
MAX_VALUE_CHARS = 8192

SandboxId = Annotated[str, Path(pattern=r"^[0-9a-f]{8,32}$")]
OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]


class SandboxCreate(BaseModel):
    """A wish for a sandbox."""

    model_config = ConfigDict(extra="ignore")

    sandbox_id: str = Field(pattern=r"^[0-9a-f]{8,32}$")
    thread_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    user_id: str = Field("default", pattern=r"^[A-Za-z0-9_-]{1,128}$")
    image: str | None = Field(None, max_length=512)
    environment: dict[str, str] = Field(default_factory=dict, max_length=MAX_VARIABLES)

    @field_validator("environment")
    @classmethod
    def _variables(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if not VARIABLE.fullmatch(name) or len(value) > MAX_VALUE_CHARS:
                raise ValueError(f"variable {name[:64]!r} has a wrong name or is too long")
        return variables


class SandboxAnswer(BaseModel):
    """A sandbox as callers see it."""

    sandbox_id: str
    sandbox_url: str | None
    status: str


class SandboxList(BaseModel):
    """All sandboxes."""

    sandboxes: list[SandboxAnswer]
    count: int


def create_app(settings: Settings, open_cluster: OpenCluster) -> FastAPI:
    """Build the service; the cluster is connected when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_cluster() as cluster:
            app.state.cluster = cluster
            yield

    app = FastAPI(
        title="DeerFlow provisioner", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.settings = settings
    app.add_exception_handler(ClusterError, _cluster_error)
    app.add_api_route("/health", health, methods=["GET"])
    guarded = [Depends(check_key)]
    app.add_api_route("/api/sandboxes", create, methods=["POST"], dependencies=guarded)
    app.add_api_route("/api/sandboxes", listing, methods=["GET"], dependencies=guarded)
    app.add_api_route("/api/sandboxes/{sandbox_id}", find, methods=["GET"], dependencies=guarded)
    app.add_api_route("/api/sandboxes/{sandbox_id}", remove, methods=["DELETE"], dependencies=guarded)
    return app


def check_key(
    request: Request,
    x_api_key: Annotated[str, Header()] = "",
    authorization: Annotated[str, Header()] = "",
) -> None:
    """Let only callers in who know the key."""
    given = x_api_key or authorization.removeprefix("Bearer ")
    if not secrets.compare_digest(given.encode(), request.app.state.settings.api_key.encode()):
        raise HTTPException(401, "the key is missing or wrong; send it as X-API-Key")


async def health(request: Request) -> JSONResponse:
    """Tell whether the cluster can be used."""
    is_well = await request.app.state.cluster.is_reachable()
    return JSONResponse({"status": "ok" if is_well else "no cluster"}, 200 if is_well else 503)


async def create(body: SandboxCreate, request: Request) -> SandboxAnswer:
    """Start a sandbox, or return the one that runs."""
    settings: Settings = request.app.state.settings
    image = body.image or settings.image
    if image != settings.image and image not in settings.allowed_images:
        raise HTTPException(403, f"image {image} is not allowed here; add it to SANDBOX_ALLOWED_IMAGES")
    wish = Wish(body.sandbox_id, body.thread_id, body.user_id, image, body.environment)
    return _answer(await request.app.state.cluster.create(wish))


async def listing(request: Request) -> SandboxList:
    """Return all sandboxes."""
    found = [_answer(state) for state in await request.app.state.cluster.list()]
    return SandboxList(sandboxes=found, count=len(found))


async def find(sandbox_id: SandboxId, request: Request) -> SandboxAnswer:
    """Return one sandbox."""
    state = await request.app.state.cluster.find(sandbox_id)
    if state is None:
        raise HTTPException(404, f"there is no sandbox {sandbox_id}")
    return _answer(state)


async def remove(sandbox_id: SandboxId, request: Request) -> dict[str, object]:
    """Remove one sandbox; removing it twice is fine."""
    return {
        "ok": True,
        "sandbox_id": sandbox_id,
        "removed": await request.app.state.cluster.remove(sandbox_id),
    }


async def _cluster_error(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 502)


def _answer(state: SandboxState) -> SandboxAnswer:
    return SandboxAnswer(sandbox_id=state.sandbox_id, sandbox_url=state.url, status=state.status)
