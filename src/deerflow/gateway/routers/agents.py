"""Routes for the user's custom agents: list, create, change, delete."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response
from deerflow.gateway.openapi import answers
from deerflow.lead.custom_agents import (
    MAX_SOUL_CHARS,
    NAME,
    RESERVED,
    CustomAgent,
    CustomAgentConfig,
    ModelParameters,
    changed,
)
from deerflow.memory import Scope

OFF = "Custom agents cannot be seen or changed over HTTP; set agents_api.enabled to true in config.yaml."


async def _switched_on(deerflow: CurrentApp) -> None:
    if not deerflow.settings.agents_api.enabled:
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
    model_settings: ModelParameters | None = None
    thinking_enabled: bool | None = None
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    soul: str = Field("", max_length=MAX_SOUL_CHARS)


class AgentCreate(AgentChange):
    """A new agent."""

    name: str = Field(pattern=_PATTERN)


@router.get("/agents", **answers("AgentList", 403))
async def list_agents(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the user's own agents, sorted by name.

    Answers 403 while `agents_api.enabled` is false in the settings.
    """
    agents = await asyncio.to_thread(deerflow.custom_agents.of_user, user)
    return json_response({"agents": [agent.to_dict() for agent in agents]})


@router.get("/agents/check", **answers("NameCheck", 403))
async def check_agent_name(
    user: CurrentUser, deerflow: CurrentApp, name: Annotated[str, Query(pattern=_PATTERN)]
) -> Response:
    """Tell whether a name is free for a new agent.

    Names have letters, digits and hyphens, and are compared in lower case. Answers 403 while
    `agents_api.enabled` is false in the settings.
    """
    is_taken = await asyncio.to_thread(deerflow.custom_agents.exists, user, name)
    return json_response({"available": not is_taken, "name": name.lower()})


@router.post("/agents", **answers("Agent", 403, 409, status=201))
async def create_agent(body: AgentCreate, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Create an agent of the user's own.

    The name must be free and not reserved, and a model that is named must be one of the settings. A run uses
    the agent with its name as `assistant_id` or as `context.agent_name`. Answers 403 while
    `agents_api.enabled` is false in the settings.
    """
    if body.name.lower() in RESERVED:
        raise HTTPException(422, f"'{body.name}' cannot be an agent's name: it has a meaning of its own here")
    _check_model(deerflow, body)
    agent = changed(CustomAgent(body.name.lower(), CustomAgentConfig()), _parts(body))
    return json_response((await asyncio.to_thread(deerflow.custom_agents.create, user, agent)).to_dict(), 201)


@router.get("/agents/{name}", **answers("Agent", 403, 404))
async def get_agent(name: AgentPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return one of the user's own agents with its instructions.

    Answers 403 while `agents_api.enabled` is false in the settings.
    """
    return json_response((await asyncio.to_thread(deerflow.custom_agents.get, user, name)).to_dict())


@router.put("/agents/{name}", **answers("Agent", 403, 404))
async def update_agent(
    name: AgentPath, body: AgentChange, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Change an agent; fields that are absent stay as they are.

    Runs that start afterwards use the changed agent; runs in flight go on as they began. Answers 403 while
    `agents_api.enabled` is false in the settings.
    """
    _check_model(deerflow, body)
    agent = changed(await asyncio.to_thread(deerflow.custom_agents.get, user, name), _parts(body))
    return json_response((await asyncio.to_thread(deerflow.custom_agents.update, user, agent)).to_dict())


@router.delete("/agents/{name}", **answers(None, 403, 404, status=204))
async def delete_agent(name: AgentPath, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete an agent together with its memory.

    Threads of its runs stay. Answers 403 while `agents_api.enabled` is false in the settings.
    """
    await asyncio.to_thread(deerflow.custom_agents.delete, user, name)
    await deerflow.memories.clear(Scope(user, name.lower()))
    return Response(status_code=204)


def _parts(body: AgentChange) -> dict[str, Any]:
    return body.model_dump(exclude_unset=True, exclude={"name"})


def _check_model(deerflow: DeerFlow, body: AgentChange) -> None:
    if body.model is not None and body.model not in deerflow.models.names:
        raise HTTPException(
            422, f"there is no model '{body.model}'; known: {', '.join(deerflow.models.names)}"
        )
