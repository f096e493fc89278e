"""Routes for the user's memory: read, change, export and import, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.config.memory import MAX_FACTS, NOOP
from deerflow.config.secrets import masked
from deerflow.errors import InvalidInputError
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response
from deerflow.gateway.openapi import answers
from deerflow.lead.custom_agents import NAME
from deerflow.memory import Memory, Scope, memory_of
from deerflow.memory.base import (
    DEFAULT_CATEGORY,
    DEFAULT_CONFIDENCE,
    MAX_CATEGORY_CHARS,
    MAX_FACT_CHARS,
    MAX_SUMMARY_CHARS,
)
from deerflow.memory.recall import MAX_ITEMS

router = APIRouter(tags=["memory"])

OFF = "nothing is remembered here: memory.manager_class is noop in config.yaml"
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Content = Annotated[str, StringConstraints(max_length=MAX_FACT_CHARS)]
Category = Annotated[str, StringConstraints(max_length=MAX_CATEGORY_CHARS)]
Stamp = Annotated[str, StringConstraints(max_length=64)]
FactPath = Annotated[str, Path(max_length=128)]


class FactCreate(BaseModel):
    """A fact to remember."""

    content: Content
    category: Category = DEFAULT_CATEGORY
    confidence: Confidence = DEFAULT_CONFIDENCE


class FactPatch(BaseModel):
    """What of a fact is to change; what is absent stays."""

    content: Annotated[Content, Field(min_length=1)] | None = None
    category: Category | None = None
    confidence: Confidence | None = None


class FactIn(FactCreate):
    """A fact of a file."""

    id: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:-]+$")
    createdAt: Stamp = ""  # noqa: N815 - the name on the wire
    source: Annotated[str, StringConstraints(max_length=128)] = "unknown"


class ReplacedFactIn(FactIn):
    """A fact of a file that a newer one replaced."""

    validUntil: Stamp = ""  # noqa: N815
    replacedBy: Annotated[str, StringConstraints(max_length=128)] = ""  # noqa: N815


class SectionIn(BaseModel):
    """A summary of a file."""

    summary: Annotated[str, StringConstraints(max_length=MAX_SUMMARY_CHARS)] = ""
    updatedAt: Stamp = ""  # noqa: N815


class MemoryIn(BaseModel):
    """A memory as it was exported."""

    user: dict[str, SectionIn] = Field(default_factory=dict, max_length=20)
    history: dict[str, SectionIn] = Field(default_factory=dict, max_length=20)
    facts: list[FactIn] = Field(default_factory=list, max_length=MAX_FACTS)
    replacedFacts: list[ReplacedFactIn] = Field(default_factory=list, max_length=MAX_FACTS)  # noqa: N815


async def _scope(
    user: CurrentUser, agent_name: Annotated[str | None, Query(pattern=f"^{NAME}$")] = None
) -> Scope:
    return Scope(user, agent_name)


async def _writable(deerflow: CurrentApp) -> None:
    if deerflow.settings.memory.manager_class == NOOP:
        raise HTTPException(501, OFF)


Whose = Annotated[Scope, Depends(_scope)]
WRITABLE = [Depends(_writable)]


@router.get("/memory", **answers("Memory"))
async def get_memory(scope: Whose, deerflow: CurrentApp) -> Response:
    """Return all that is remembered of the user: summaries and facts."""
    return _answer(await deerflow.memories.read(scope))


@router.get("/memory/recall", **answers("RecalledMemory"))
async def recall_memory(
    scope: Whose,
    deerflow: CurrentApp,
    query: Annotated[str, Query(min_length=1, max_length=4000)],
    limit: Annotated[int, Query(ge=1, le=100)] = MAX_ITEMS,
) -> Response:
    """Return what is recalled for a question, best first: score, source thread and date of each item.

    Facts of `memory.backend_config.guaranteed_categories` are given to the model in addition.
    """
    items = await deerflow.memories.recall(scope, query, limit=limit)
    return json_response({"query": query, "items": [item.to_dict() for item in items]})


@router.post("/memory/reload", **answers("Memory"))
async def reload_memory(scope: Whose, deerflow: CurrentApp) -> Response:
    """Return all that is remembered, with the settings as they are now.

    Nothing is cached, so this equals `GET /memory`.
    """
    return _answer(await deerflow.memories.read(scope))


@router.delete("/memory", **answers("Memory"))
async def clear_memory(scope: Whose, deerflow: CurrentApp) -> Response:
    """Delete all that is remembered of the user."""
    return _answer(await deerflow.memories.clear(scope))


@router.get("/memory/export", **answers("Memory"))
async def export_memory(scope: Whose, deerflow: CurrentApp) -> Response:
    """Return all that is remembered in the form that `POST /memory/import` takes."""
    return _answer(await deerflow.memories.read(scope))


@router.post("/memory/import", dependencies=WRITABLE, **answers("Memory", 400, 409, 501))
async def import_memory(body: MemoryIn, scope: Whose, deerflow: CurrentApp) -> Response:
    """Replace all that is remembered by an exported memory.

    Answers 501 while `memory.manager_class` is `noop`.
    """
    memory = memory_of(body.model_dump())
    return _answer(
        await deerflow.memories.put(scope, memory, settings=deerflow.settings.memory.backend_config)
    )


@router.post("/memory/facts", dependencies=WRITABLE, **answers("Memory", 400, 409, 501))
async def add_fact(body: FactCreate, scope: Whose, deerflow: CurrentApp) -> Response:
    """Add one fact to the memory and return all that is remembered.

    Answers 501 while `memory.manager_class` is `noop`.
    """
    settings = deerflow.settings.memory.backend_config
    memory, _ = await deerflow.memories.add_fact(
        scope, body.content, category=body.category, confidence=body.confidence, settings=settings
    )
    return _answer(memory)


@router.patch("/memory/facts/{fact_id}", dependencies=WRITABLE, **answers("Memory", 400, 404, 409, 501))
async def change_fact(fact_id: FactPath, body: FactPatch, scope: Whose, deerflow: CurrentApp) -> Response:
    """Change one fact and return all that is remembered; absent fields stay.

    Answers 501 while `memory.manager_class` is `noop`.
    """
    changes = body.model_dump(exclude_none=True)
    if not changes:
        raise InvalidInputError("nothing to change; send content, category or confidence")
    return _answer(await deerflow.memories.change_fact(scope, fact_id, **changes))


@router.delete("/memory/facts/{fact_id}", dependencies=WRITABLE, **answers("Memory", 404, 409, 501))
async def remove_fact(fact_id: FactPath, scope: Whose, deerflow: CurrentApp) -> Response:
    """Delete one fact and return all that is remembered.

    Answers 501 while `memory.manager_class` is `noop`.
    """
    return _answer(await deerflow.memories.remove_fact(scope, fact_id))


@router.get("/memory/config", **answers("MemorySettings"))
async def get_memory_settings(deerflow: CurrentApp) -> Response:
    """Return the settings of the memory, without secrets."""
    return json_response(_config(deerflow))


@router.get("/memory/status", **answers("MemoryStatus"))
async def get_memory_status(scope: Whose, deerflow: CurrentApp) -> Response:
    """Return the settings of the memory and all that is remembered."""
    return json_response(
        {"config": _config(deerflow), "data": (await deerflow.memories.read(scope)).to_dict()}
    )


def _answer(memory: Memory) -> Response:
    return json_response(memory.to_dict())


def _config(deerflow: DeerFlow) -> dict[str, Any]:
    settings = deerflow.settings.memory.model_dump(mode="json")
    return {**settings, "backend_config": masked("backend_config", settings["backend_config"])}
