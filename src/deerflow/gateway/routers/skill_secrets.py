"""Routes for the secrets that users give to skills; values go in and never come out."""

import asyncio
from typing import Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.errors import NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response
from deerflow.gateway.openapi import answers
from deerflow.skills import Skill
from deerflow.skills.secrets import secrets_out

router = APIRouter(tags=["skills"])


class SecretValues(BaseModel):
    """Values of secrets by name."""

    # Any: an error of pydantic would show the value.
    secrets: dict[str, Any] = Field(min_length=1, max_length=100)


@router.get("/skills/{name}/secrets", **answers("SkillSecrets", 404))
async def list_skill_secrets(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the secrets that a skill names, and whether the caller has set them."""
    return await _secrets_of(deerflow, user, await _find(deerflow, name, user))


@router.put("/skills/{name}/secrets", **answers("SkillSecrets", 400, 404))
async def set_skill_secrets(
    name: str, body: SecretValues, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Set secrets that a skill names, for the caller; others stay as they are.

    They are stored encrypted, and passed to the commands of this skill only.
    """
    skill = await _find(deerflow, name, user)
    await asyncio.to_thread(deerflow.skill_secrets.put, user, skill, body.secrets)
    return await _secrets_of(deerflow, user, skill)


@router.delete("/skills/{name}/secrets", **answers("SkillSecrets", 404))
async def delete_skill_secrets(
    name: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    secret: str | None = Query(None, description="Only this secret; all when absent.", max_length=200),
) -> Response:
    """Remove the caller's secrets of a skill, or one of them."""
    skill = await _find(deerflow, name, user)
    is_gone = await asyncio.to_thread(deerflow.skill_secrets.remove, user, skill.name, secret)
    if secret is not None and not is_gone:
        raise NotFoundError(f"secret of skill '{skill.name}'", secret[:80])
    return await _secrets_of(deerflow, user, skill)


async def _find(deerflow: DeerFlow, name: str, user: str) -> Skill:
    found = {skill.name: skill for skill in await asyncio.to_thread(deerflow.skills.all, user=user)}
    if name not in found:
        raise NotFoundError("skill", name[:80], known=found)
    return found[name]


async def _secrets_of(deerflow: DeerFlow, user: str, skill: Skill) -> Response:
    known = await asyncio.to_thread(deerflow.skill_secrets.names, user, skill.name)
    return json_response({"skill": skill.name, "secrets": secrets_out(skill, known)})
