"""Routes for skills: list, enable or disable, install."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import ThreadFolders
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.files.artifacts import open_artifact
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response, owned_thread
from deerflow.gateway.openapi import answers
from deerflow.skills import SKILL_SUFFIX, Skill, SkillProblem, install_skill

router = APIRouter(tags=["skills"])


class SkillUpdate(BaseModel):
    """Whether agents may use a skill."""

    enabled: bool


class SkillInstall(BaseModel):
    """Where a skill's archive is: a file of a thread."""

    thread_id: str = Field(min_length=1, max_length=128)
    path: str = Field(min_length=1, max_length=4096)


@router.get("/skills", **answers("SkillList"))
async def list_skills(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the caller's skills, sorted by name, with whether agents may use them.

    `problems` says which files of skills were skipped, shadowed by another skill, or loaded with a warning.
    """
    found = await _skills(deerflow, user)
    problems = await asyncio.to_thread(deerflow.skills.problems, user=user)
    return json_response(
        {
            "skills": [_skill_out(deerflow, skill) for skill in found],
            "problems": [_problem_out(deerflow, problem, user) for problem in problems],
        }
    )


@router.get("/skills/{name}", **answers("Skill", 404))
async def get_skill(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return one skill by its name."""
    return json_response(_skill_out(deerflow, await _find(deerflow, name, user)))


@router.put("/skills/{name}", **answers("Skill", 400, 404, 409))
async def update_skill(name: str, body: SkillUpdate, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Switch a skill on or off for runs that start afterwards.

    A skill whose state is set in `config.yaml` answers 409.
    """
    skill = await _find(deerflow, name, user)

    def change(document: Mapping[str, Any]) -> Mapping[str, Any]:
        known = document.get("skills")
        return {"skills": {**(known if isinstance(known, dict) else {}), name: {"enabled": body.enabled}}}

    await deerflow.edit_extensions(change)
    shown = _skill_out(deerflow, skill)
    if shown["enabled"] is not body.enabled:
        raise ConflictError(f"extensions.skills.{name} in config.yaml says otherwise; change it there")
    return json_response(shown)


@router.post("/skills/install", operation_id="install_skill", **answers("SkillInstalled", 400, 404, 409))
async def install(body: SkillInstall, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Install a skill from a `.skill` archive among a thread's files, for runs that start afterwards.

    The archive holds one folder with a `SKILL.md`. A skill of the same name answers 409.
    """
    if not body.path.endswith(SKILL_SUFFIX):
        raise InvalidInputError(f"path '{body.path[:200]}' must name a {SKILL_SUFFIX} file")
    await owned_thread(deerflow, body.thread_id, user)
    folders = deerflow.folders(user, body.thread_id)
    skill = await asyncio.to_thread(_installed, folders, body.path, deerflow.loaded.skills_root)
    message = f"Skill '{skill.name}' is installed"
    return json_response({"success": True, "skill_name": skill.name, "message": message})


def _installed(folders: ThreadFolders, path: str, root: Path) -> Skill:
    with closing(open_artifact(folders, path)) as found, os.fdopen(os.dup(found.fd), "rb") as file:
        return install_skill(file, root)


async def _skills(deerflow: DeerFlow, user: str) -> tuple[Skill, ...]:
    deerflow.skills.refresh()  # a skill that was just added is found
    return await asyncio.to_thread(deerflow.skills.all, user=user)


async def _find(deerflow: DeerFlow, name: str, user: str) -> Skill:
    found = {skill.name: skill for skill in await _skills(deerflow, user)}
    if name not in found:
        raise NotFoundError("skill", name[:80], known=found)
    return found[name]


def _skill_out(deerflow: DeerFlow, skill: Skill) -> dict[str, Any]:
    state = deerflow.loaded.extensions.skills.get(skill.name)
    return {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "category": skill.category,
        "enabled": state.enabled if state is not None else True,
        "editable": skill.is_editable,
    }


def _problem_out(deerflow: DeerFlow, problem: SkillProblem, user: str) -> dict[str, Any]:
    return {
        "path": deerflow.skills.folders.path_of(problem.file, user),
        "line": problem.line,
        "reason": problem.reason,
        "level": problem.level,
    }
