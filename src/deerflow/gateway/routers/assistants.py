"""Routes for assistants: the built-in one, those of custom agents, and stored ones."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import DEFAULT_USER, LEAD_AGENT, Assistant, Thread, new_id
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, free_thread, json_response
from deerflow.gateway.openapi import CHANGED_UNSHOWN, answers
from deerflow.gateway.pagination import Prefer, changed, page_of
from deerflow.gateway.run_request import GraphName
from deerflow.lead.custom_agents import CustomAgent, agent_name
from deerflow.runtime.json_views import assistant_out, selected
from deerflow.storage import AssistantQuery, ThreadQuery

router = APIRouter(tags=["assistants"])

_PAGE = 500
AssistantId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
AssistantField = Literal[
    "assistant_id",
    "graph_id",
    "name",
    "description",
    "config",
    "context",
    "metadata",
    "created_at",
    "updated_at",
    "version",
]


class AssistantCreate(BaseModel):
    """A new assistant."""

    graph_id: GraphName = LEAD_AGENT
    assistant_id: AssistantId | None = None
    config: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    name: str | None = Field(None, max_length=256)
    description: str | None = Field(None, max_length=4096)
    if_exists: Literal["raise", "do_nothing"] | None = None


class AssistantPatch(BaseModel):
    """What the next version of an assistant changes."""

    graph_id: str | None = None
    config: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    name: str | None = Field(None, max_length=256)
    description: str | None = Field(None, max_length=4096)


class AssistantSearch(BaseModel):
    """Which assistants to list."""

    metadata: dict[str, Any] | None = None
    graph_id: str | None = None
    name: str | None = None
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0)
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[AssistantField] | None = None


class VersionSearch(BaseModel):
    """Which versions of an assistant to list."""

    metadata: dict[str, Any] | None = None
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0)


class LatestVersion(BaseModel):
    """The version that becomes the latest."""

    version: int = Field(ge=1)


@router.post("/assistants", **answers("Assistant", 400, 409))
async def create_assistant(body: AssistantCreate, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Create an assistant, whose config and context are the defaults of its runs.

    `graph_id` is `lead_agent`. An id that is taken answers 409 unless `if_exists` is `do_nothing`, which
    returns the assistant that is there.
    """
    _check_graph(body.graph_id)
    if ready := await ready_assistant(deerflow, body.assistant_id or "", user):
        if body.if_exists == "do_nothing":
            return json_response(assistant_out(ready))
        raise ConflictError(_why_not(ready))
    now = datetime.now(UTC)
    assistant = Assistant(
        id=body.assistant_id or new_id(),
        user_id=user,
        created_at=now,
        updated_at=now,
        graph_id=body.graph_id,
        name=body.name or "Untitled",
        description=body.description,
        config=body.config or {},
        context=body.context or {},
        metadata={"created_by": "user", **(body.metadata or {})},
    )
    try:
        kept = await deerflow.storage.assistants.create(assistant)
    except ConflictError:
        if body.if_exists != "do_nothing":
            raise
        kept = await deerflow.storage.assistants.get(assistant.id, user)
    return json_response(assistant_out(kept))


@router.post("/assistants/search", **answers("list[SelectedAssistant]"))
async def search_assistants(
    user: CurrentUser, deerflow: CurrentApp, body: AssistantSearch | None = None
) -> Response:
    """List assistants: first the built-in one and the user's own agents, then those that were created.

    The body filters, sorts and pages; without one the first ten are returned. The header `X-Pagination-Total`
    has the number of all that match.
    """
    search = body or AssistantSearch()
    ready = await _matching_ready(deerflow, search, user)
    found = ready[search.offset : search.offset + search.limit + 1]
    query = replace(
        _query(search, user), limit=search.limit - len(found) + 1, offset=max(0, search.offset - len(ready))
    )
    if query.limit:
        found += await deerflow.storage.assistants.search(query)
    total = len(ready) + await deerflow.storage.assistants.count(_query(search, user))
    page, headers = page_of(found, limit=search.limit, offset=search.offset, total=total)
    return json_response([selected(assistant_out(item), search.select) for item in page], headers=headers)


@router.post("/assistants/count", **answers("int"))
async def count_assistants(
    user: CurrentUser, deerflow: CurrentApp, body: AssistantSearch | None = None
) -> Response:
    """Count the assistants that match a filter, as a plain number."""
    search = body or AssistantSearch()
    ready = await _matching_ready(deerflow, search, user)
    return json_response(await deerflow.storage.assistants.count(_query(search, user)) + len(ready))


@router.get("/assistants/{assistant_id}", **answers("Assistant", 404))
async def get_assistant(assistant_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return an assistant in its latest version."""
    return json_response(assistant_out(await _find(deerflow, assistant_id, user)))


@router.patch("/assistants/{assistant_id}", **answers("Assistant", 400, 404, 409, empty=CHANGED_UNSHOWN))
async def patch_assistant(
    assistant_id: str, body: AssistantPatch, user: CurrentUser, deerflow: CurrentApp, prefer: Prefer = None
) -> Response:
    """Change an assistant; the change is stored as its next version.

    `metadata` is merged, other fields are replaced and absent ones stay. Built-in assistants and the user's
    own agents cannot be changed here (409).
    """
    known = await _own(deerflow, assistant_id, user)
    if body.graph_id is not None:
        _check_graph(body.graph_id)
    changes = body.model_dump(exclude_unset=True, exclude_none=True)
    changes["metadata"] = {**known.metadata, **(body.metadata or {})}
    newer = await deerflow.storage.assistants.add_version(replace(known, **changes))
    return changed(assistant_out(newer), prefer)


@router.delete("/assistants/{assistant_id}", **answers(None, 404, 409, status=204))
async def delete_assistant(
    assistant_id: str, user: CurrentUser, deerflow: CurrentApp, delete_threads: bool = False
) -> Response:
    """Delete an assistant with all its versions.

    Its threads and runs stay unless `delete_threads` is set. Built-in assistants and the user's own agents
    cannot be deleted here (409).
    """
    await _own(deerflow, assistant_id, user)
    if delete_threads:
        await _delete_threads(deerflow, assistant_id, user)
    await deerflow.storage.assistants.delete(assistant_id, user)
    return Response(status_code=204)


@router.post("/assistants/{assistant_id}/versions", **answers("list[Assistant]", 404))
async def list_assistant_versions(
    assistant_id: str, user: CurrentUser, deerflow: CurrentApp, body: VersionSearch | None = None
) -> Response:
    """List the versions of an assistant, newest first."""
    search = body or VersionSearch()
    if ready := await ready_assistant(deerflow, assistant_id, user):
        found = [ready] if search.offset == 0 else []
    else:
        found = await deerflow.storage.assistants.versions(
            assistant_id, user, limit=search.limit, offset=search.offset
        )
    wanted = (search.metadata or {}).items()
    return json_response(
        [assistant_out(version) for version in found if wanted <= dict(version.metadata).items()]
    )


@router.post("/assistants/{assistant_id}/latest", **answers("Assistant", 404, 409))
async def set_latest_assistant_version(
    assistant_id: str, body: LatestVersion, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Make an older version of an assistant the one that its runs start from."""
    await _own(deerflow, assistant_id, user)
    return json_response(
        assistant_out(await deerflow.storage.assistants.set_latest(assistant_id, user, body.version))
    )


@router.get("/assistants/{assistant_id}/graph", **answers("AssistantGraph", 404))
async def get_assistant_graph(
    assistant_id: str, user: CurrentUser, deerflow: CurrentApp, xray: bool | int = False
) -> Response:
    """Return the nodes and edges of an assistant's graph.

    `xray` also shows the inside of nodes that are graphs.
    """
    assistant = await _find(deerflow, assistant_id, user)
    return json_response({"graph_id": assistant.graph_id, **deerflow.state.graph(xray=xray)})


@router.get(
    "/assistants/{assistant_id}/subgraphs",
    operation_id="get_assistant_subgraphs",
    **answers("NoSubgraphs", 404),
)
@router.get(
    "/assistants/{assistant_id}/subgraphs/{namespace}",
    operation_id="get_assistant_subgraphs_at",
    **answers("NoSubgraphs", 404),
)
async def assistant_subgraphs(
    assistant_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    namespace: str | None = None,
    recurse: Annotated[bool, Query()] = False,
) -> Response:
    """Return the graphs inside an assistant's graph: none, since sub-agents run as graphs of their own."""
    await _find(deerflow, assistant_id, user)
    return json_response({})


@router.get("/assistants/{assistant_id}/schemas", **answers("AssistantSchemas", 404))
async def get_assistant_schemas(assistant_id: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return JSON schemas of an assistant's input, output, state, config and context."""
    assistant = await _find(deerflow, assistant_id, user)
    return json_response({"graph_id": assistant.graph_id, **deerflow.state.schemas()})


async def _find(deerflow: DeerFlow, assistant_id: str, user: str) -> Assistant:
    ready = await ready_assistant(deerflow, assistant_id, user)
    return ready or await deerflow.storage.assistants.get(assistant_id, user)


async def _own(deerflow: DeerFlow, assistant_id: str, user: str) -> Assistant:
    if ready := await ready_assistant(deerflow, assistant_id, user):
        raise ConflictError(_why_not(ready))
    return await deerflow.storage.assistants.get(assistant_id, user)


def _why_not(ready: Assistant) -> str:
    if ready.id == LEAD_AGENT:
        return f"assistant '{LEAD_AGENT}' is built in: create one of your own and change that"
    return f"assistant '{ready.id}' is an agent of yours: change or delete it at /api/agents/{ready.id}"


async def _delete_threads(deerflow: DeerFlow, assistant_id: str, user: str) -> None:
    """Delete the threads whose last run was this assistant's; none of them if one is busy."""
    query = ThreadQuery(user_id=user, metadata={"assistant_id": assistant_id}, limit=_PAGE)
    threads: list[Thread] = []
    while page := await deerflow.storage.threads.search(replace(query, offset=len(threads))):
        threads += page
    for thread in threads:
        await free_thread(deerflow, thread.id, user)
    for thread in threads:
        with suppress(NotFoundError):  # deleted meanwhile by another request
            await deerflow.threads.delete(thread.id, user)


async def _matching_ready(deerflow: DeerFlow, search: AssistantSearch, user: str) -> list[Assistant]:
    return [assistant for assistant in await ready_assistants(deerflow, user) if _fits(assistant, search)]


def _check_graph(graph_id: str) -> None:
    if graph_id != LEAD_AGENT:
        raise InvalidInputError(f"graph_id '{graph_id}' is unknown; there is: {LEAD_AGENT}")


def _query(search: AssistantSearch, user: str) -> AssistantQuery:
    return AssistantQuery(
        user_id=user,
        graph_id=search.graph_id,
        name=search.name,
        metadata=search.metadata or None,
        limit=search.limit,
        offset=search.offset,
        sort_by=search.sort_by or "created_at",
        descending=search.sort_order != "asc",
    )


def _fits(assistant: Assistant, search: AssistantSearch) -> bool:
    return (
        search.graph_id in (None, assistant.graph_id)
        and (search.name or "").lower() in assistant.name.lower()
        and all(assistant.metadata.get(key) == value for key, value in (search.metadata or {}).items())
    )


_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""These assistants have no creation time, but clients require one."""
LEAD = Assistant(
    id=LEAD_AGENT,
    user_id=DEFAULT_USER,
    created_at=_EPOCH,
    updated_at=_EPOCH,
    name=LEAD_AGENT,
    description="Plans, delegates, works with files and a shell, and answers.",
    metadata={"created_by": "system"},
)


async def ready_assistants(deerflow: DeerFlow, user: str) -> list[Assistant]:
    """Return all of them, the built-in one first."""
    if not deerflow.settings.agents_api.enabled:
        return [LEAD]  # custom agents are not exposed over HTTP
    agents = await asyncio.to_thread(deerflow.custom_agents.of_user, user)
    return [LEAD, *(_of_agent(agent, user) for agent in agents)]


async def ready_assistant(deerflow: DeerFlow, assistant_id: str, user: str) -> Assistant | None:
    """Return the assistant of this name, if there is one."""
    if assistant_id == LEAD_AGENT:
        return LEAD
    if deerflow.settings.agents_api.enabled and await deerflow.is_custom_agent(assistant_id, user):
        agent = await asyncio.to_thread(deerflow.custom_agents.get, user, agent_name(assistant_id))
        return _of_agent(agent, user)
    return None


def _of_agent(agent: CustomAgent, user: str) -> Assistant:
    return Assistant(
        id=agent.name,
        user_id=user,
        created_at=_EPOCH,
        updated_at=_EPOCH,
        name=agent.name,
        description=agent.config.description or None,
        metadata={"created_by": "user"},
    )
