"""What the API, the client and the commands do with a user's skills."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from deerflow.config import LoadedSettings, Paths
from deerflow.domain import DEFAULT_USER
from deerflow.errors import ConflictError, DeerFlowError, InvalidInputError, NotFoundError
from deerflow.skills.archive import pack
from deerflow.skills.catalogues import CatalogueListing, Catalogues, catalogues_of
from deerflow.skills.editor import SkillEditor
from deerflow.skills.install import Installation, InstallOptions, InstallPlan, SkillInstaller
from deerflow.skills.loader import Skills, skills_of
from deerflow.skills.package_files import package_files
from deerflow.skills.skill import Skill, SkillProblem, package_digest
from deerflow.skills.versions import SkillChange, Version, custom_skills_of

Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns the top-level keys of `extensions_config.json` to write, given its contents."""


@dataclass(frozen=True, slots=True)
class PublishedSkill:
    """A skill as others can download it: its `SKILL.md` alone, or an archive."""

    skill: Skill
    kind: Literal["skill-md", "archive"]
    digest: str
    """`sha256:` and the digest of the bytes to download."""


class SkillLibrary:
    """A user's skills, and the catalogues to get more from; methods without `async` block."""

    def __init__(
        self, skills: Skills, editor: SkillEditor, catalogues: Catalogues, *, user: str = DEFAULT_USER
    ) -> None:
        self.skills = skills
        self.editor = editor
        self.custom = editor.skills
        self.catalogues = catalogues
        self._user = user
        self._enabled: tuple[tuple[Skill, ...], frozenset[str]] = ((), frozenset())
        self._installer = SkillInstaller(skills, editor.skills, user=user)

    def all(self) -> tuple[Skill, ...]:
        """Return every usable skill by name, those included that were just added."""
        self.skills.refresh()
        return self.skills.all(user=self._user)

    def problems(self) -> tuple[SkillProblem, ...]:
        """Return what is wrong with files of skills."""
        return self.skills.problems(user=self._user)

    def find(self, name: str) -> Skill:
        """Return one skill; raise `NotFoundError` if there is none of this name."""
        found = {skill.name: skill for skill in self.all()}
        if name not in found:
            raise NotFoundError("skill", name[:80], known=found)
        return found[name]

    def is_enabled(self, skill: Skill) -> bool:
        """Return whether agents may use a skill."""
        enabled = self.skills.enabled(user=self._user)
        if enabled is not self._enabled[0]:  # a new tuple after every change
            self._enabled = (enabled, frozenset(each.name for each in enabled))
        return skill.name in self._enabled[1]

    def check_state(self, skill: Skill, *, is_enabled: bool) -> None:
        """Raise `ConflictError` if a skill is not in the state that was just written."""
        if self.is_enabled(skill) is not is_enabled:
            raise ConflictError(
                f"extensions.skills.{skill.name} in config.yaml says otherwise; change it there"
            )

    def view(self, skill: Skill) -> dict[str, Any]:
        """Return a skill as a JSON object."""
        return {
            "name": skill.name,
            "description": skill.description,
            "license": skill.license,
            "category": skill.category,
            "enabled": self.is_enabled(skill),
            "editable": skill.is_editable,
            "source": skill.source,
        }

    def detail(self, name: str) -> dict[str, Any]:
        """Return a skill with all that its front matter says, its text and its files."""
        skill = self.find(name)
        files = package_files(skill.folder)
        history = self.custom.history(name) if skill.is_editable else []
        return {
            **self.view(skill),
            "version": skill.version,
            "path": skill.path,
            "folder": str(skill.folder),
            "compatibility": skill.compatibility,
            "author": skill.author,
            "metadata": dict(skill.metadata),
            "allowed_tools": None if skill.allowed_tools is None else list(skill.allowed_tools),
            "dependencies": list(skill.dependencies),
            "required_secrets": [
                {"name": each.name, "optional": each.is_optional} for each in skill.required_secrets
            ],
            "warnings": [problem_view(problem, str(problem.file)) for problem in skill.warnings],
            "digest": f"sha256:{package_digest(skill.folder)}",
            "files": [{"path": str(file.path), "size": file.size} for file in files],
            "history_length": len(history),
            "content": skill.file.read_text(encoding="utf-8"),
        }

    def export(self, name: str) -> bytes:
        """Return a skill as a `.skill` archive, the same bytes for the same files."""
        return pack(self.find(name).folder, top=name)

    def remove(self, name: str, *, author: str = "user") -> Version:
        """Delete a custom skill; its versions stay, so that a rollback restores it."""
        skill = self.find(name)
        if not skill.is_editable:
            raise InvalidInputError(
                f"'{name}' is a {skill.category} skill ({skill.source}) and cannot be removed; disable it"
            )
        version = self.custom.delete(skill.folder.name, SkillChange(author, "removed"))
        self.skills.refresh()
        return version

    async def install_archive(self, file: BinaryIO, options: InstallOptions) -> Installation:
        """Install from a `.skill` archive, ZIP or gzipped tar."""
        return await self._install(await asyncio.to_thread(self._installer.plan_archive, file, options))

    async def install_path(self, path: Path, options: InstallOptions) -> Installation:
        """Install from a folder or an archive of this machine."""
        return await self._install(await asyncio.to_thread(self._installer.plan_path, path, options))

    async def install_named(
        self, name: str, options: InstallOptions, *, catalogue: str | None = None, digest: str | None = None
    ) -> Installation:
        """Install from a catalogue; `digest` is the one that the caller has seen, if any."""
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="deerflow-skill-")
        try:
            package = Path(folder, "-")
            entry = await self.catalogues.fetch(name, package, catalogue=catalogue, digest=digest)
            options = replace(options, source=entry.catalogue)
            plan = await asyncio.to_thread(self._installer.plan_package, package, options, expected_name=name)
        finally:  # in a thread: a package may have a thousand files
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
        return await self._install(plan)

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return the versions of a custom skill as JSON objects, the oldest first; also of a removed one."""
        versions = self.custom.history_with_edits(name)
        if not versions and not self.find(name).is_editable:
            raise InvalidInputError(f"'{name}' is not one of your own skills, so it has no versions")
        return [version_view(version) for version in versions]

    async def rollback(self, name: str, number: int | None = None, *, author: str = "user") -> Version:
        """Restore an earlier version of a custom skill; without a number the one before the last change."""
        await asyncio.to_thread(self.history, name)  # says why a skill has none
        if number is None:
            number = await asyncio.to_thread(self.custom.number_before, name, -1)
        return await self.editor.rollback(name, number, SkillChange(author))

    def diff(self, name: str, old: int | None = None, new: int | None = None) -> str:
        """Return the differences of two versions; by default of the last two. 0 is the draft."""
        numbers = [version["version"] for version in self.history(name)]
        if not numbers:
            raise NotFoundError("version of the skill", name[:80])
        new = numbers[-1] if new is None else new
        earlier = [number for number in numbers if number < new or new == 0]
        if old is None and not earlier:
            return ""
        return self.custom.diff(name, earlier[-1] if old is None else old, new)

    async def search(self, query: str = "", *, limit: int = 20) -> dict[str, Any]:
        """Search the catalogues; return a JSON object."""
        found = await self.catalogues.search(query, limit=limit)
        installed = {skill.name for skill in await asyncio.to_thread(self.all)}
        return {
            "skills": _entries(found, installed),
            "problems": [
                {"catalogue": problem.catalogue, "reason": problem.reason} for problem in found.problems
            ],
            "catalogues": self.catalogues.locations,
        }

    def published(self) -> list[PublishedSkill]:
        """Return the enabled skills for an index; those that cannot be packed are left out."""
        self.skills.refresh()
        found = []
        for skill in self.skills.enabled(user=self._user):
            try:
                kind, data = self.publish(skill)
            except (DeerFlowError, OSError):
                continue
            found.append(PublishedSkill(skill, kind, f"sha256:{hashlib.sha256(data).hexdigest()}"))
        return found

    def publish(self, skill: Skill) -> tuple[Literal["skill-md", "archive"], bytes]:
        """Return the bytes to download for an index: the `SKILL.md` if it is all there is, or a ZIP."""
        if len(package_files(skill.folder)) == 1:
            return "skill-md", skill.file.read_bytes()
        return "archive", pack(skill.folder, top=None)

    async def _install(self, plan: InstallPlan) -> Installation:
        checks = await self.editor.review(plan.name, plan.package, plan.base) if plan.is_changed else {}
        return await asyncio.to_thread(self._installer.apply, plan, checks)


def library_of(loaded: LoadedSettings, paths: Paths, user: str = DEFAULT_USER) -> SkillLibrary:
    """Return a user's skills on the files alone: no model reviews what is installed."""
    skills = skills_of(loaded, paths)
    editor = SkillEditor(custom_skills_of(loaded, paths, user), skills, user=user)
    return SkillLibrary(skills, editor, catalogues_of(loaded), user=user)


def enabling(name: str, *, is_enabled: bool) -> Change:
    """Return the change of `extensions_config.json` that switches a skill on or off."""

    def change(document: Mapping[str, Any]) -> Mapping[str, Any]:
        known = document.get("skills")
        return {"skills": {**(known if isinstance(known, dict) else {}), name: {"enabled": is_enabled}}}

    return change


def installation_view(installation: Installation) -> dict[str, Any]:
    """Return what an installation did as a JSON object."""
    version = installation.version
    return {
        "success": True,
        "skill_name": installation.skill.name,
        "message": _message(installation),
        "version": version.number,
        "kept": list(installation.kept),
        "replaced": list(installation.replaced),
        "findings": [asdict(finding) for finding in version.findings],
    }


def version_view(version: Version) -> dict[str, Any]:
    """Return a version as a JSON object."""
    findings = [asdict(finding) for finding in version.findings]
    return {
        "version": version.number,
        "action": version.action,
        "author": version.author,
        "time": version.time,
        "reason": version.reason,
        "digest": version.digest,
        "run_id": version.run_id,
        "scanner": {"decision": "warn" if findings else "allow", "findings": findings},
        "checks": version.checks,
        "files": list(version.files),
    }


def problem_view(problem: SkillProblem, path: str) -> dict[str, Any]:
    """Return a problem as a JSON object; `path` is what the reader knows the file by."""
    return {"path": path, "line": problem.line, "reason": problem.reason, "level": problem.level}


def _message(installation: Installation) -> str:
    name = installation.skill.name
    if not installation.is_changed:
        return f"Skill '{name}' is up to date"
    if not installation.is_update:
        return f"Skill '{name}' is installed"
    kept = f"; your changes are kept in {', '.join(installation.kept)}" if installation.kept else ""
    return f"Skill '{name}' is updated{kept}"


def _entries(found: CatalogueListing, installed: set[str]) -> Sequence[dict[str, Any]]:
    return [
        {
            "name": entry.name,
            "description": entry.description,
            "license": entry.license,
            "version": entry.version,
            "catalogue": entry.catalogue,
            "digest": entry.digest,
            "installed": entry.name in installed,
        }
        for entry in found.entries
    ]
