"""Edits the custom skills of one user: each change is scanned and reviewed, then a version or a draft.

A change that a person approved is a version at once. Another change of a skill in use is a draft: the old
version stays in use until the skill's own cases show that the draft is better, or a person approves it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from deerflow.domain import DEFAULT_USER
from deerflow.errors import ConflictError, NotFoundError
from deerflow.skills.loader import Skills
from deerflow.skills.review import SkillReviewer
from deerflow.skills.skill import Skill
from deerflow.skills.versions import (
    CustomSkills,
    FileContent,
    Package,
    SkillChange,
    Version,
    read_package,
)


class SkillEditor:
    """Writes the custom skills of one user.

    Args:
        library: All skills, which are looked at again after a change.
        reviewer: Reviews changes before they are written; None: no model can.
    """

    def __init__(
        self,
        skills: CustomSkills,
        library: Skills,
        *,
        user: str = DEFAULT_USER,
        reviewer: SkillReviewer | None = None,
    ) -> None:
        self.skills = skills
        self._library = library
        self._user = user
        self._reviewer = reviewer

    async def find(self, name: str) -> Skill | None:
        """Return the skill of this name that agents of this user see; None if there is none."""
        self._library.refresh()  # a skill that was just added is found
        found = await asyncio.to_thread(self._library.all, user=self._user)
        return next((skill for skill in found if skill.name == name), None)

    async def copy(self, name: str) -> dict[str, FileContent]:
        """Return the files of any skill, as the start of a custom one."""
        skill = await self.find(name)
        if skill is None:
            raise NotFoundError("skill", name[:80])
        return await asyncio.to_thread(read_package, skill.folder)

    async def create(self, name: str, package: Package, change: SkillChange) -> Version:
        """Write a new skill; a person approved it."""
        if name in await asyncio.to_thread(self.skills.names):
            raise ConflictError(f"there is a custom skill '{name}' already; patch or edit it")
        checks = await self.review(name, package, {})
        return await self._written(self.skills.write, name, package, replace(change, checks=checks))

    async def edit(self, name: str, package: Package, change: SkillChange, *, is_approved: bool) -> Version:
        """Change a skill: a version if a person approved it, otherwise a draft (its number is 0)."""
        base = await asyncio.to_thread(self.skills.read, name)
        checks = await self.review(name, package, base)
        change = replace(change, checks={**change.checks, **checks})
        if is_approved:
            return await self._written(self.skills.write, name, package, change)
        return await asyncio.to_thread(self.skills.draft, name, package, change)

    async def delete(self, name: str, change: SkillChange) -> Version:
        """Delete a skill; a person approved it."""
        return await self._written(self.skills.delete, name, change)

    async def rollback(self, name: str, number: int, change: SkillChange) -> Version:
        """Write the files of an earlier version again."""
        return await self._written(self.skills.rollback, name, number, change)

    async def promote(self, name: str, change: SkillChange, *, digest: str | None = None) -> Version:
        """Put the draft of a skill into use; `digest` is the draft that is meant, None: any."""
        return await self._written(partial(self.skills.promote, digest=digest), name, change)

    async def newest(self, name: str) -> dict[str, FileContent]:
        """Return the files that the next edit starts from: the draft's if there is one."""
        return await asyncio.to_thread(self._newest, name)

    def _newest(self, name: str) -> dict[str, FileContent]:
        self.skills.folder(name)
        draft = self.skills.read_draft(name)
        return self.skills.read(name) if draft is None else self.skills.files_of(name, draft)

    async def review(self, name: str, package: Package, base: Package) -> Mapping[str, Any]:
        """Let the model review a change; return its result for `SkillChange.checks`."""
        if self._reviewer is None:
            return {}
        review = await self._reviewer.check(name, package, base)
        return {"review": {key: value for key, value in asdict(review).items() if value}}

    async def _written(self, write: Callable[..., Version], *arguments: Any) -> Version:
        version = await asyncio.to_thread(write, *arguments)
        self._library.refresh()
        return version


def changed_text(package: Package, path: str, old: str, new: str) -> dict[str, FileContent]:
    """Return a package with one text of a file replaced; raise if it is not there exactly once."""
    if path not in package:
        raise NotFoundError("file of the skill", path[:200], known=package)
    text = package[path].content.decode()
    found = text.count(old) if old else 0
    if found != 1:
        raise ConflictError(
            f"the text to replace occurs {found} times in {path}; give more of it, so that it occurs once"
        )
    changed = text.replace(old, new, 1).encode()
    return {**package, path: replace(package[path], content=changed)}
