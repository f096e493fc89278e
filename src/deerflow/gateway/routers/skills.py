"""Skills over HTTP: which there are, and which agents may use."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.errors import ConflictError, NotFoundError
from deerflow.gateway.deps import House, json_response
from deerflow.skills import Skill, Skills

router = APIRouter(tags=["skills"])


class SkillUpdate(BaseModel):
    """Whether agents may use a skill."""

    model_config = ConfigDict(extra="ignore")

    enabled: bool


@router.get("/skills")
async def list_skills(house: House) -> Response:
    """List the skills by name."""
    await house.refresh()
    return json_response({"skills": [_skill_out(house, skill) for skill in await _skills(house)]})


@router.get("/skills/{name}")
async def get_skill(name: str, house: House) -> Response:
    """Return one skill."""
    await house.refresh()
    return json_response(_skill_out(house, await _find(house, name)))


@router.put("/skills/{name}")
async def update_skill(name: str, body: SkillUpdate, house: House) -> Response:
    """Switch a skill on or off, for runs that start from now on."""
    skill = await _find(house, name)

    def change(document: Mapping[str, Any]) -> Mapping[str, Any]:
        known = document.get("skills")
        return {"skills": {**(known if isinstance(known, dict) else {}), name: {"enabled": body.enabled}}}

    await house.edit_extensions(change)
    shown = _skill_out(house, skill)
    if shown["enabled"] is not body.enabled:
        raise ConflictError(f"extensions.skills.{name} in config.yaml says otherwise; change it there")
    return json_response(shown)


async def _skills(house: DeerFlow) -> tuple[Skill, ...]:
    # Looked for anew: what was just put there is there.
    skills = Skills(house.loaded.skills_root, container_path=house.settings.skills.container_path)
    return await asyncio.to_thread(skills.all)


async def _find(house: DeerFlow, name: str) -> Skill:
    found = {skill.name: skill for skill in await _skills(house)}
    if name not in found:
        raise NotFoundError("skill", name[:80], known=found)
    return found[name]


def _skill_out(house: DeerFlow, skill: Skill) -> dict[str, Any]:
    state = house.loaded.extensions.skills.get(skill.name)
    return {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "category": skill.category,
        "enabled": state.enabled if state is not None else True,
        "editable": skill.category == "custom",
    }
