"""`skill_manage`: the agent writes down what it learnt as a custom skill, and improves the skills it has.

A new skill, a deletion and a change that shall count at once need a person's approval, which the guardrails
ask for before the tool runs. Every other change is a draft: the version in use stays until the skill's own
cases show that the draft is better, or a person approves it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from langchain_core.tools import BaseTool
from pydantic import Field

from deerflow.context import RunContext
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.skills import SKILL_FILE, FileContent, SkillChange, Version
from deerflow.skills.editor import SkillEditor, changed_text
from deerflow.tools.define import AsksFirst, Described, PlainText, Runtime, tool_of

SKILL_MANAGE = "skill_manage"
AUTHOR = "agent"
MAX_TEXT_CHARS = 200_000
Editors = Callable[[RunContext], SkillEditor]
"""Returns the editor of the skills of a run's user."""
Compare = Callable[[RunContext, str], Awaitable[bool]]
"""Starts to compare a skill's draft with the version in use; returns False if the skill has no cases."""


class SkillManageArguments(Described, AsksFirst):
    """What `skill_manage` takes."""

    action: Literal["create", "patch", "edit", "delete", "write_file", "remove_file"] = Field(
        description="create a skill; patch one text of a file; edit the whole SKILL.md; delete the skill; "
        "write_file or remove_file: another file of the skill."
    )
    name: str = Field(
        min_length=1, max_length=64, description="The skill's name: lower-case words with hyphens."
    )
    content: PlainText | None = Field(
        None,
        max_length=MAX_TEXT_CHARS,
        description="create, edit: the whole SKILL.md with front matter (name, description). write_file: "
        "the file.",
    )
    path: str | None = Field(
        None,
        max_length=512,
        description="A file in the skill's folder, such as references/api.md or scripts/check.py. "
        "patch: SKILL.md if absent.",
    )
    find: PlainText | None = Field(
        None, max_length=MAX_TEXT_CHARS, description="patch: the text to replace; it occurs exactly once."
    )
    replace: PlainText | None = Field(None, max_length=MAX_TEXT_CHARS, description="patch: the new text.")
    from_skill: str | None = Field(
        None, max_length=64, description="create: start from a copy of this skill, such as a built-in one."
    )
    reason: PlainText = Field("", max_length=500, description="What was learnt, in a sentence.")
    apply_now: bool = Field(
        False,
        description="Only when the user asked for this change: they approve it, and it counts at once.",
    )

    @classmethod
    def asked_about(cls, args: Mapping[str, Any]) -> str:
        match args.get("action"):
            case "create":
                return "skill_create"
            case "delete":
                return "skill_delete"
        return "skill_change" if args.get("apply_now") else ""


def make_skill_tool(editors: Editors, compare: Compare) -> BaseTool:
    """Return the tool with which agents change the skills of their user."""

    async def skill_manage(*, runtime: Runtime, **values: Any) -> str:
        """Write down what you learnt as a skill, or improve a skill marked as custom.

        create and delete ask the user first. Other changes become a draft that is compared with the skill
        in use; with apply_now the user approves the change and it counts at once. Texts are scanned: no
        secrets, no hidden text, no downloads that are run.
        """
        arguments = SkillManageArguments(**values)
        editor = editors(runtime.context)
        change = SkillChange(AUTHOR, arguments.reason, run_id=runtime.context.run_id)
        match arguments.action:
            case "create":
                await editor.create(arguments.name, await _new_package(editor, arguments), change)
                return f"The skill {arguments.name} exists from the next turn on."
            case "delete":
                await _check_editable(editor, arguments.name)
                await editor.delete(arguments.name, change)
                return f"The skill {arguments.name} was deleted; its versions stay, and it can be restored."
        package = await _changed_package(editor, arguments)
        version = await editor.edit(arguments.name, package, change, is_approved=arguments.apply_now)
        has_cases = not version.number and await compare(runtime.context, arguments.name)
        return _said(arguments.name, version, has_cases=has_cases)

    return tool_of(SKILL_MANAGE, SkillManageArguments)(skill_manage)


def _said(name: str, version: Version, *, has_cases: bool) -> str:
    if version.number:
        return f"Version {version.number} of the skill {name} counts from the next turn on."
    if has_cases:
        return (
            f"The change of {name} is a draft. Its own cases are run with the old and the new version now; "
            "it counts when none is worse and at least one is better. Go on with the version in use."
        )
    return (
        f"The change of {name} is a draft, and the skill has no cases (evals/evals.json) to compare it with. "
        "A person can approve it with `deerflow skills promote` or over HTTP. Go on with the version in use."
    )


async def _new_package(editor: SkillEditor, arguments: SkillManageArguments) -> dict[str, FileContent]:
    package = await editor.copy(arguments.from_skill) if arguments.from_skill else {}
    if arguments.content is not None:
        package[SKILL_FILE] = FileContent(arguments.content.encode())
    elif not package:
        raise InvalidInputError("create needs content: the whole SKILL.md, with name and description")
    return package


async def _changed_package(editor: SkillEditor, arguments: SkillManageArguments) -> dict[str, FileContent]:
    await _check_editable(editor, arguments.name)
    package = await editor.newest(arguments.name)
    path = arguments.path or SKILL_FILE
    match arguments.action:
        case "patch":
            return changed_text(package, path, arguments.find or "", arguments.replace or "")
        case "remove_file":
            if path == SKILL_FILE:
                raise InvalidInputError(f"{SKILL_FILE} cannot be removed; delete the skill instead")
            if path not in package:
                raise NotFoundError("file of the skill", path[:200], known=package)
            return {name: file for name, file in package.items() if name != path}
        case "edit":
            path = SKILL_FILE
    if arguments.content is None or (arguments.action == "write_file" and not arguments.path):
        raise InvalidInputError(
            f"{arguments.action} needs content" + " and path" * (arguments.action == "write_file")
        )
    old = package.get(path)
    is_executable = old.is_executable if old is not None else path.startswith("scripts/")
    return {**package, path: FileContent(arguments.content.encode(), is_executable)}


async def _check_editable(editor: SkillEditor, name: str) -> None:
    """Raise if a skill is not the user's own; say how to copy it."""
    skill = await editor.find(name)
    if skill is not None and not skill.is_editable:
        raise InvalidInputError(
            f"the skill {name} is built in and cannot be changed; offer the user to copy it: "
            f"action create, name {name}, from_skill {name}. The copy is used instead of it"
        )
