"""What is remembered of the user: see, change, take along, forget."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.config.memory import NOOP
from deerflow.config.secrets import masked
from deerflow.errors import InvalidInputError
from deerflow.gateway.deps import CurrentUser, House, json_response
from deerflow.lead.custom import NAME
from deerflow.memory import Memory, Scope, memory_of
from deerflow.memory.base import (
    DEFAULT_CATEGORY,
    DEFAULT_CONFIDENCE,
    MAX_CATEGORY_CHARS,
    MAX_FACT_CHARS,
    MAX_SUMMARY_CHARS,
)

router = APIRouter(tags=["memory"])

OFF = "nothing is remembered here: memory.manager_class is noop in config.yaml"
MAX_FACTS = 500
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Content = Annotated[str, StringConstraints(max_length=MAX_FACT_CHARS)]
Category = Annotated[str, StringConstraints(max_length=MAX_CATEGORY_CHARS)]
Stamp = Annotated[str, StringConstraints(max_length=64)]
FactPath = Annotated[str, Path(max_length=128)]


class FactCreate(BaseModel):
    """A fact to remember."""

    model_config = ConfigDict(extra="ignore")

    content: Content
    category: Category = DEFAULT_CATEGORY
    confidence: Confidence = DEFAULT_CONFIDENCE


class FactPatch(BaseModel):
    """What of a fact is to change; what is absent stays."""

    model_config = ConfigDict(extra="ignore")

    content: Annotated[Content, Field(min_length=1)] | None = None
    category: Category | None = None
    confidence: Confidence | None = None


class FactIn(FactCreate):
    """A fact of a file."""

    id: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:-]+$")
    createdAt: Stamp = ""  # noqa: N815 - the name on the wire
    source: Annotated[str, StringConstraints(max_length=128)] = "unknown"


class SectionIn(BaseModel):
    """A summary of a file."""

    model_config = ConfigDict(extra="ignore")

    summary: Annotated[str, StringConstraints(max_length=MAX_SUMMARY_CHARS)] = ""
    updatedAt: Stamp = ""  # noqa: N815


class MemoryIn(BaseModel):
    """A memory as it was exported."""

    model_config = ConfigDict(extra="ignore")

    user: dict[str, SectionIn] = Field(default_factory=dict, max_length=20)
    history: dict[str, SectionIn] = Field(default_factory=dict, max_length=20)
    facts: list[FactIn] = Field(default_factory=list, max_length=MAX_FACTS)


async def _scope(
    user: CurrentUser, agent_name: Annotated[str | None, Query(pattern=f"^{NAME}$")] = None
) -> Scope:
    return Scope(user, agent_name)


async def _writable(house: House) -> None:
    if house.settings.memory.manager_class == NOOP:
        raise HTTPException(501, OFF)


Whose = Annotated[Scope, Depends(_scope)]
WRITABLE = [Depends(_writable)]


@router.get("/memory")
async def read_memory(scope: Whose, house: House) -> Response:
    """Return what is remembered; `agent_name` names one of the user's own agents."""
    return _answer(await house.memories.read(scope))


@router.post("/memory/reload")
async def reload_memory(scope: Whose, house: House) -> Response:
    """Return what is remembered, with the settings as they are now; nothing is kept beside the database."""
    return _answer(await house.memories.read(scope))


@router.delete("/memory")
async def clear_memory(scope: Whose, house: House) -> Response:
    """Forget everything."""
    return _answer(await house.memories.clear(scope))


@router.get("/memory/export")
async def export_memory(scope: Whose, house: House) -> Response:
    """Return what is remembered, to be kept elsewhere."""
    return _answer(await house.memories.read(scope))


@router.post("/memory/import", dependencies=WRITABLE)
async def import_memory(body: MemoryIn, scope: Whose, house: House) -> Response:
    """Remember what was exported, in place of everything else."""
    memory = memory_of(body.model_dump())
    return _answer(await house.memories.put(scope, memory, settings=house.settings.memory.backend_config))


@router.post("/memory/facts", dependencies=WRITABLE)
async def add_fact(body: FactCreate, scope: Whose, house: House) -> Response:
    """Remember one more fact."""
    settings = house.settings.memory.backend_config
    memory, _ = await house.memories.add_fact(
        scope, body.content, category=body.category, confidence=body.confidence, settings=settings
    )
    return _answer(memory)


@router.patch("/memory/facts/{fact_id}", dependencies=WRITABLE)
async def change_fact(fact_id: FactPath, body: FactPatch, scope: Whose, house: House) -> Response:
    """Change a fact."""
    changes = body.model_dump(exclude_none=True)
    if not changes:
        raise InvalidInputError("nothing to change; send content, category or confidence")
    return _answer(await house.memories.change_fact(scope, fact_id, **changes))


@router.delete("/memory/facts/{fact_id}", dependencies=WRITABLE)
async def remove_fact(fact_id: FactPath, scope: Whose, house: House) -> Response:
    """Forget a fact."""
    return _answer(await house.memories.remove_fact(scope, fact_id))


@router.get("/memory/config")
async def memory_config(house: House) -> Response:
    """Tell how the memory is set up."""
    return json_response(_config(house))


@router.get("/memory/status")
async def memory_status(scope: Whose, house: House) -> Response:
    """Tell how the memory is set up and what is in it."""
    return json_response({"config": _config(house), "data": (await house.memories.read(scope)).to_dict()})


def _answer(memory: Memory) -> Response:
    return json_response(memory.to_dict())


def _config(house: DeerFlow) -> dict[str, Any]:
    settings = house.settings.memory.model_dump(mode="json")
    return {**settings, "backend_config": masked("backend_config", settings["backend_config"])}
