"""Agents of the user's own: list, make, change, delete."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.gateway.deps import CurrentUser, House, json_response
from deerflow.lead.custom import (
    MAX_SOUL_CHARS,
    NAME,
    RESERVED,
    CustomAgent,
    CustomAgentConfig,
    ModelWishes,
    changed,
)
from deerflow.memory import Scope

OFF = "Custom agents cannot be seen or changed over HTTP; set agents_api.enabled to true in config.yaml."


async def _switched_on(house: House) -> None:
    if not house.settings.agents_api.enabled:
        raise HTTPException(403, OFF)


router = APIRouter(tags=["agents"], dependencies=[Depends(_switched_on)])

_PATTERN = f"^{NAME}$"
AgentPath = Annotated[str, Path(pattern=_PATTERN)]
Names = list[Annotated[str, StringConstraints(min_length=1, max_length=128)]]


class AgentChange(BaseModel):
    """What of an agent is to change; what is absent stays."""

    model_config = ConfigDict(extra="forbid")

    description: str = Field("", max_length=2000)
    model: str | None = Field(None, max_length=128)
    tool_groups: Names | None = Field(None, max_length=100)
    skills: Names | None = Field(None, max_length=500)
    model_settings: ModelWishes | None = None
    thinking_enabled: bool | None = None
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    soul: str = Field("", max_length=MAX_SOUL_CHARS)


class AgentCreate(AgentChange):
    """A new agent."""

    name: str = Field(pattern=_PATTERN)


@router.get("/agents")
async def list_agents(user: CurrentUser, house: House) -> Response:
    """List the user's agents by name."""
    agents = await asyncio.to_thread(house.custom_agents.of_user, user)
    return json_response({"agents": [agent.to_dict() for agent in agents]})


@router.get("/agents/check")
async def check_name(
    user: CurrentUser, house: House, name: Annotated[str, Query(pattern=_PATTERN)]
) -> Response:
    """Tell whether a name is free."""
    is_taken = await asyncio.to_thread(house.custom_agents.exists, user, name)
    return json_response({"available": not is_taken, "name": name.lower()})


@router.post("/agents")
async def create_agent(body: AgentCreate, user: CurrentUser, house: House) -> Response:
    """Make an agent."""
    if body.name.lower() in RESERVED:
        raise HTTPException(422, f"'{body.name}' cannot be an agent's name: it has a meaning of its own here")
    _check_model(house, body)
    agent = changed(CustomAgent(body.name.lower(), CustomAgentConfig()), _parts(body))
    return json_response((await asyncio.to_thread(house.custom_agents.create, user, agent)).to_dict(), 201)


@router.get("/agents/{name}")
async def read_agent(name: AgentPath, user: CurrentUser, house: House) -> Response:
    """Return one agent."""
    return json_response((await asyncio.to_thread(house.custom_agents.get, user, name)).to_dict())


@router.put("/agents/{name}")
async def update_agent(name: AgentPath, body: AgentChange, user: CurrentUser, house: House) -> Response:
    """Change an agent; runs that start afterwards use it as it is then."""
    _check_model(house, body)
    agent = changed(await asyncio.to_thread(house.custom_agents.get, user, name), _parts(body))
    return json_response((await asyncio.to_thread(house.custom_agents.update, user, agent)).to_dict())


@router.delete("/agents/{name}")
async def delete_agent(name: AgentPath, user: CurrentUser, house: House) -> Response:
    """Delete an agent, with what it remembers."""
    await asyncio.to_thread(house.custom_agents.delete, user, name)
    await house.memories.clear(Scope(user, name.lower()))
    return Response(status_code=204)


def _parts(body: AgentChange) -> dict[str, Any]:
    return body.model_dump(exclude_unset=True, exclude={"name"})


def _check_model(house: DeerFlow, body: AgentChange) -> None:
    if body.model is not None and body.model not in house.models.names:
        raise HTTPException(422, f"there is no model '{body.model}'; known: {', '.join(house.models.names)}")
