"""Routes for custom skills: their text, versions and drafts."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.agents.middlewares.approval import is_users
from deerflow.app import DeerFlow
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response, owned_thread
from deerflow.gateway.openapi import answers
from deerflow.skills import SKILL_FILE, FileContent, SkillChange
from deerflow.skills.editor import SkillEditor
from deerflow.skills.evals import recorded_case, with_case
from deerflow.skills.library import version_view

router = APIRouter(prefix="/skills/custom", tags=["skills"])

_BLOCKED = {400: "SkillBlocked"}
MAX_CONTENT_CHARS = 500_000


class CustomSkillUpdate(BaseModel):
    """The new text of a skill's `SKILL.md`."""

    content: str = Field(min_length=1, max_length=MAX_CONTENT_CHARS)
    reason: str = Field("", max_length=1000)


class SkillCase(BaseModel):
    """A thread whose last question and answer become a case of a skill."""

    thread_id: str = Field(min_length=1, max_length=128)
    assertions: list[Annotated[str, Field(min_length=1, max_length=1000)]] = Field([], max_length=20)


class SkillRollback(BaseModel):
    """Which change of a skill to undo, or which version to restore."""

    history_index: int = -1
    to_version: int | None = Field(None, ge=1)


@router.get("", **answers("SkillNames"))
async def list_custom_skills(user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the caller's own skills, sorted by name."""
    library = deerflow.skill_library(user)
    found = [skill for skill in await asyncio.to_thread(library.all) if skill.is_editable]
    return json_response({"skills": [library.view(skill) for skill in found]})


@router.get("/{name}", **answers("CustomSkill", 404))
async def get_custom_skill(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return a skill of the caller with its `SKILL.md`, files, version and whether it has a draft."""
    return json_response(await _skill_with_content(deerflow, name, user))


@router.put("/{name}", **answers("CustomSkill", 404, 413, own_errors=_BLOCKED))
async def update_custom_skill(
    name: str, body: CustomSkillUpdate, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Replace the `SKILL.md` of a skill, from the next turn of every thread on; a draft is dropped.

    The scan answers 400 with the ids of the rules that block it. A shipped skill answers 404: copy it first.
    """
    editor = await _editor(deerflow, name, user)
    package = await asyncio.to_thread(editor.skills.read, name)
    changed = {**package, SKILL_FILE: FileContent(body.content.encode("utf-8", "replace"))}
    await editor.edit(name, changed, SkillChange(user, body.reason or "edited"), is_approved=True)
    return json_response(await _skill_with_content(deerflow, name, user))


@router.delete("/{name}", **answers("Success", 400, 404))
async def delete_custom_skill(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete a skill of the caller; its versions stay, and a rollback restores it."""
    editor = await _editor(deerflow, name, user)
    await editor.delete(name, SkillChange(user, "deleted"))
    return json_response({"success": True})


@router.post("/{name}/copy", **answers("CustomSkill", 404, 409, own_errors=_BLOCKED))
async def copy_skill(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Copy a shipped skill to the caller's own, which can be edited and is used instead of it."""
    editor = deerflow.skill_editor(user)
    await editor.create(name, await editor.copy(name), SkillChange(user, "copied"))
    return json_response(await _skill_with_content(deerflow, name, user))


@router.get("/{name}/history", **answers("SkillHistory", 400, 404))
async def get_skill_history(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return the versions of a skill, the oldest first; also of a deleted skill."""
    editor = deerflow.skill_editor(user)
    versions = await asyncio.to_thread(editor.skills.history_with_edits, name)
    if not versions:
        await _editor(deerflow, name, user)  # 404 if there is no such skill at all
    return json_response({"history": [version_view(version) for version in versions]})


@router.get("/{name}/diff", **answers("SkillDiff", 400, 404))
async def get_skill_diff(
    name: str, user: CurrentUser, deerflow: CurrentApp, from_version: int, to_version: int = 0
) -> Response:
    """Return the differences between two versions; 0 is the draft."""
    skills = deerflow.skill_editor(user).skills
    return json_response({"diff": await asyncio.to_thread(skills.diff, name, from_version, to_version)})


@router.post("/{name}/rollback", **answers("CustomSkill", 404, own_errors=_BLOCKED))
async def rollback_skill(name: str, body: SkillRollback, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Undo a change of a skill, by default the last one; or restore a version by its number."""
    editor = deerflow.skill_editor(user)
    number = body.to_version
    if number is None:
        number = await asyncio.to_thread(editor.skills.number_before, name, body.history_index)
    await editor.rollback(name, number, SkillChange(user))
    return json_response(await _skill_with_content(deerflow, name, user))


@router.post("/{name}/cases", **answers("CustomSkill", 404, own_errors=_BLOCKED))
async def record_skill_case(name: str, body: SkillCase, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Record the last question and answer of a thread as a case of a skill, in its `evals/evals.json`.

    A later edit by an agent replaces the skill only if it does as well in all of its cases.
    """
    editor = await _editor(deerflow, name, user)
    await owned_thread(deerflow, body.thread_id, user)
    state = await deerflow.state.latest(body.thread_id)
    messages = state.values.get("messages", []) if state is not None else []
    asked = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage) and is_users(m)), "")
    answer = next((m.text for m in reversed(messages) if isinstance(m, AIMessage)), "")
    case = recorded_case(body.thread_id, asked, answer, body.assertions)
    package = with_case(await asyncio.to_thread(editor.skills.read, name), case)
    await editor.edit(name, package, SkillChange(user, f"recorded the case {case.id}"), is_approved=True)
    return json_response(await _skill_with_content(deerflow, name, user))


@router.get("/{name}/draft", **answers("SkillDraft", 400, 404))
async def get_skill_draft(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Return the draft of a skill's next version, and how it differs from the version in use."""
    editor = await _editor(deerflow, name, user)
    draft = await asyncio.to_thread(editor.skills.read_draft, name)
    if draft is None:
        raise NotFoundError("draft of the skill", name[:80])
    return json_response(
        {"draft": version_view(draft), "diff": await asyncio.to_thread(editor.skills.draft_diff, name)}
    )


@router.delete("/{name}/draft", **answers("Success", 400, 404))
async def delete_skill_draft(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Discard the draft of a skill's next version."""
    editor = await _editor(deerflow, name, user)
    await asyncio.to_thread(editor.skills.discard, name)
    return json_response({"success": True})


@router.post("/{name}/draft/promote", **answers("CustomSkill", 404, 409, own_errors=_BLOCKED))
async def promote_skill_draft(name: str, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Approve the draft of a skill: it is used from the next turn of every thread on."""
    editor = await _editor(deerflow, name, user)
    await editor.promote(name, SkillChange(user, checks={"gate": {"approved_by": user}}))
    return json_response(await _skill_with_content(deerflow, name, user))


async def _editor(deerflow: DeerFlow, name: str, user: str) -> SkillEditor:
    """Return the editor of the caller's skills; raise if this skill is not one of them."""
    editor = deerflow.skill_editor(user)
    try:
        await asyncio.to_thread(editor.skills.folder, name)
    except NotFoundError:
        shipped = await editor.find(name)
        if shipped is None:
            raise
        raise InvalidInputError(
            f"the skill '{name[:80]}' of {shipped.source} cannot be changed; copy it first: "
            f"POST /api/skills/custom/{name[:80]}/copy"
        ) from None
    return editor


async def _skill_with_content(deerflow: DeerFlow, name: str, user: str) -> dict[str, Any]:
    editor = deerflow.skill_editor(user)
    await asyncio.to_thread(editor.skills.folder, name)  # 404 for skills that are not the caller's own
    library = deerflow.skill_library(user)
    skill = await asyncio.to_thread(library.find, name)
    package = await asyncio.to_thread(editor.skills.read, name)
    current = await asyncio.to_thread(editor.skills.current, name)
    draft = await asyncio.to_thread(editor.skills.read_draft, name)
    return {
        **library.view(skill),
        "content": package[SKILL_FILE].content.decode(errors="replace"),
        "files": list(package),
        "version": None if current is None else current.number,
        "has_draft": draft is not None,
    }
