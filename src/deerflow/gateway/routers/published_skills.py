"""Routes for other agents: an index of the caller's skills with digests, and the files that it names.

The index is that of Agent Skills Discovery 0.2, which `skills.catalogues` of another server can name.
"""

import asyncio
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.errors import NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response
from deerflow.gateway.openapi import answers
from deerflow.skills import SKILL_FILE
from deerflow.skills.catalogues import INDEX_SCHEMA
from deerflow.skills.library import PublishedSkill, SkillLibrary

router = APIRouter(prefix="/.well-known/agent-skills", tags=["skills"])
_ARCHIVE = "skill.zip"


@router.get("/index.json", **answers("SkillIndex"))
async def get_skill_index(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the caller's enabled skills for other agents, with the digests of their files.

    A skill of one file is offered as its `SKILL.md`, every other one as a ZIP archive.
    """
    found = await asyncio.to_thread(deerflow.skill_library(user).published)
    index = {"$schema": INDEX_SCHEMA, "skills": [_entry(each) for each in found]}
    return json_response(index, headers={"Cache-Control": "no-cache"})


@router.get("/{name}/SKILL.md", **answers("skill_text", 404))
async def download_skill_text(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return the `SKILL.md` of an enabled skill that has no other files."""
    data = await asyncio.to_thread(_published, deerflow.skill_library(user), name, "skill-md")
    return Response(data, media_type="text/markdown; charset=utf-8", headers={"Cache-Control": "no-cache"})


@router.get("/{name}/skill.zip", **answers("skill_archive", 404))
async def download_skill_archive(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return the archive of an enabled skill, with `SKILL.md` at its root."""
    data = await asyncio.to_thread(_published, deerflow.skill_library(user), name, "archive")
    return Response(data, media_type="application/zip", headers={"Cache-Control": "no-cache"})


def _published(library: SkillLibrary, name: str, wanted: str) -> bytes:
    skill = library.find(name)
    if library.is_enabled(skill):
        kind, data = library.publish(skill)
        if kind == wanted:
            return data
    raise NotFoundError("published skill", name[:80])


def _entry(published: PublishedSkill) -> dict[str, Any]:
    file = SKILL_FILE if published.kind == "skill-md" else _ARCHIVE
    return {
        "name": published.skill.name,
        "type": published.kind,
        "description": published.skill.description,
        "url": f"{router.prefix}/{quote(published.skill.name, safe='')}/{file}",
        "digest": published.digest,
    }
