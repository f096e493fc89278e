"""Finds the skills on disk: every folder with a `SKILL.md` in one of the sources.

What is below such a folder belongs to its package: a nested `SKILL.md` is data. A skill that cannot be read
is a problem in a list; it does not affect the others.
"""

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from deerflow.config import LoadedSettings, Paths
from deerflow.domain import DEFAULT_USER
from deerflow.skills.read import MAX_FILE_BYTES, read_skill
from deerflow.skills.skill import SKILL_FILE, Skill, SkillProblem

logger = logging.getLogger(__name__)

CONTAINER_PATH = "/mnt/skills"
RESCAN_SECONDS = 2.0
MAX_DEPTH = 3
MAX_FOLDERS = 20_000
"""Maximum number of folders that are looked at in one source, which may be any folder of this host."""
FEW_FOLDERS = 64
"""Maximum number of folders of one source that the event loop looks at itself."""
PROJECT_FOLDERS = (".agents/skills", ".claude/skills")
_MAX_READ = 20_000
_NOT_SCANNED = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class SkillSource:
    """A folder of skills on this host, and its path in sandboxes."""

    name: str
    """`public`, `custom`, `skills.paths[0]`, `.agents/skills` or `.claude/skills`."""
    folder: Path
    path: str
    is_editable: bool = False

    @property
    def is_link(self) -> bool:
        """Whether a project's folder leads elsewhere; its files would come from what nobody trusted."""
        return self.name in PROJECT_FOLDERS and (self.folder.is_symlink() or self.folder.parent.is_symlink())

    @property
    def category(self) -> str:
        return "custom" if self.is_editable else "public"


@dataclass(frozen=True, slots=True)
class SkillFolders:
    """All folders of skills; `of` returns those of one user, the nearest first.

    Args:
        root: Folder with `public/` and the default user's `custom/`.
        users: Returns the folder of another user's custom skills.
        paths: The folders of `skills.paths`.
        projects: The folders of `skills.trusted_projects`.
        shipped: The skills that come with DeerFlow: the public ones of a `root` that has no `public/`.
    """

    root: Path | None
    container_path: str = CONTAINER_PATH
    users: Callable[[str], Path] | None = None
    paths: tuple[Path, ...] = ()
    projects: tuple[Path, ...] = ()
    shipped: Path | None = None

    def of(self, user: str = DEFAULT_USER) -> tuple[SkillSource, ...]:
        """Return the sources of a user's skills; of skills with one name the first source's is used."""
        base = self.container_path.rstrip("/")
        names = _unique_names(self.projects)
        sources = [
            SkillSource(part, project / part, f"{base}/projects/{name}/{part[1:].partition('/')[0]}")
            for project, name in zip(self.projects, names, strict=True)
            for part in PROJECT_FOLDERS
        ]
        if (custom := self.custom(user)) is not None:
            sources.append(SkillSource("custom", custom, f"{base}/custom", is_editable=True))
        sources += [
            SkillSource(f"skills.paths[{index}]", folder, f"{base}/paths/{name}")
            for index, (folder, name) in enumerate(zip(self.paths, _unique_names(self.paths), strict=True))
        ]
        if (public := self.public()) is not None:
            sources.append(SkillSource("public", public, f"{base}/public"))
        return tuple(sources)

    def path_of(self, file: Path, user: str = DEFAULT_USER) -> str:
        """Return the path in sandboxes of a file in one of a user's sources; only its name for others."""
        for source in self.of(user):
            if file.is_relative_to(source.folder):
                return f"{source.path}/{file.relative_to(source.folder).as_posix()}".removesuffix("/.")
        return file.name

    def public(self) -> Path | None:
        """Return the folder of the skills of all users; it may not exist."""
        own = None if self.root is None else self.root / "public"
        return own if self.shipped is None or (own is not None and own.is_dir()) else self.shipped

    def custom(self, user: str = DEFAULT_USER) -> Path | None:
        """Return the folder of a user's own skills; it may not exist."""
        if user == DEFAULT_USER or self.users is None:
            return None if self.root is None else self.root / "custom"
        return self.users(user)


def shipped_skills() -> Path | None:
    """Return the folder of the skills that come with DeerFlow: in the installed package or the repository."""
    package = Path(__file__).parent
    found = (package / "public", package.parents[2] / "skills" / "public")
    return next((folder for folder in found if folder.is_dir()), None)


def _unique_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder that is unique and safe in a path of the sandbox."""
    names: list[str] = []
    for folder in folders:
        name = re.sub(r"[^\w.-]+", "-", folder.name).strip(".-") or "folder"
        taken = sum(known == name or known.startswith(f"{name}-") for known in names)
        names.append(f"{name}-{taken + 1}" if name in names else name)
    return names


class _Found(NamedTuple):
    """A `SKILL.md` that was found, or why it is not read. Plain values, which are compared quickly."""

    path: str
    stamp: tuple[int, ...] = ()
    """Modification time, size, inode and mode: they tell a changed file."""
    reason: str | None = None


_Sources = tuple[tuple[SkillSource, list[_Found]], ...]


@dataclass(frozen=True, slots=True)
class _Scan:
    """The skills of one user, as of the last change."""

    sources: _Sources = ()
    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()


class Skills:
    """The skills in some folders; rescans them, so that changes on disk apply within seconds.

    The methods read files: call them in a thread when they may be the first after a change.
    """

    def __init__(
        self,
        folders: SkillFolders | Path | None,
        *,
        disabled: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folders = folders if isinstance(folders, SkillFolders) else SkillFolders(folders)
        self._disabled = frozenset(disabled)
        self._clock = clock
        self._scans: dict[str, _Scan] = {}
        self._enabled: dict[str, tuple[_Scan, tuple[Skill, ...]]] = {}
        self._scanned_at: dict[str, float] = {}
        self._read: dict[str, tuple[SkillSource, _Found, Skill | SkillProblem]] = {}

    def all(self, *, user: str = DEFAULT_USER) -> tuple[Skill, ...]:
        """Return every usable skill, sorted by name; without changes, the same tuple as before."""
        return self._scan(user).skills

    def enabled(self, *, user: str = DEFAULT_USER) -> tuple[Skill, ...]:
        """Return the skills that agents may use; without changes, the same tuple as before."""
        scan = self._scan(user)
        known = self._enabled.get(user)
        if known is None or known[0] is not scan:
            usable = tuple(skill for skill in scan.skills if skill.name not in self._disabled)
            known = self._enabled[user] = (scan, usable)
        return known[1]

    def problems(self, *, user: str = DEFAULT_USER) -> tuple[SkillProblem, ...]:
        """Return what is wrong with the files of skills, and which skills are shadowed."""
        return self._scan(user).problems

    def refresh(self) -> None:
        """Let the next call look at the folders at once."""
        self._scanned_at.clear()

    def rescan(self, *, user: str = DEFAULT_USER) -> None:
        """Look at a user's folders at once, so that the following calls read no file."""
        self._scanned_at.pop(user, None)
        self._scan(user)

    def is_unchanged(self, *, user: str = DEFAULT_USER) -> bool:
        """Return whether a rescan would find what the last one found; False if there are many folders.

        For the event loop: it reads attributes of a few files, which takes less time than a switch to a
        thread.
        """
        known = self._scans.get(user, _EMPTY).sources
        if not known or sum(len(found) for _, found in known) > FEW_FOLDERS:
            return False
        if self._list(user, most=FEW_FOLDERS) != known:
            return False
        self._scanned_at[user] = self._clock()
        return True

    def _list(self, user: str, *, most: int = MAX_FOLDERS) -> _Sources:
        return tuple((source, _skill_files(source, most=most)) for source in self.folders.of(user))

    def _scan(self, user: str) -> _Scan:
        scan = self._scans.get(user, _EMPTY)
        now = self._clock()
        if now - self._scanned_at.get(user, float("-inf")) < RESCAN_SECONDS:
            return scan
        self._scanned_at[user] = now
        sources = self._list(user)
        if sources != scan.sources:
            scan = self._scans[user] = self._read_all(sources, known=scan.problems)
        return scan

    def _read_all(self, sources: _Sources, *, known: Collection[SkillProblem]) -> _Scan:
        skills: dict[str, Skill] = {}
        problems: list[SkillProblem] = []
        for skill in (self._read_one(source, each) for source, found in sources for each in found):
            if isinstance(skill, SkillProblem):
                problems.append(skill)
                continue
            problems += skill.warnings
            nearer = skills.setdefault(skill.name, skill)
            if nearer is not skill:
                reason = f"the skill '{skill.name}' of {nearer.source} is used instead: {nearer.path}"
                problems.append(SkillProblem(skill.file, None, reason, "shadowed"))
        for problem in problems:
            if problem not in known:
                level = logging.WARNING if problem.level == "skipped" else logging.INFO
                logger.log(level, "skill %s: %s", problem.level, problem)
        return _Scan(sources, tuple(skills[name] for name in sorted(skills)), tuple(problems))

    def _read_one(self, source: SkillSource, found: _Found) -> Skill | SkillProblem:
        """Return what a file describes; files that did not change are not read again."""
        known = self._read.get(found.path)
        if known is not None and known[:2] == (source, found):
            return known[2]
        skill = _skill_or_problem(source, found)
        if len(self._read) >= _MAX_READ:  # mostly files that are gone
            self._read.clear()
        self._read[found.path] = (source, found, skill)
        return skill


_EMPTY = _Scan()


def _skill_or_problem(source: SkillSource, found: _Found) -> Skill | SkillProblem:
    file = Path(found.path)
    if found.reason is not None:
        return SkillProblem(file, None, found.reason, "skipped")
    try:
        return read_skill(
            file,
            category=source.category,
            path=f"{source.path}/{file.relative_to(source.folder).as_posix()}",
            source=source.name,
            is_editable=source.is_editable,
        )
    except OSError as error:
        return SkillProblem(file, None, error.strerror or str(error), "skipped")
    except ValueError as error:
        return SkillProblem(file, getattr(error, "line", None), str(error), "skipped")


def _skill_files(source: SkillSource, *, most: int) -> list[_Found]:
    """Return every `SKILL.md` of a source in a stable order, also those that are not read.

    Args:
        most: The number of folders after which it stops, with a reason.
    """
    if source.is_link:
        return [_Found(str(source.folder), reason="it is a link; put the folder itself there")]
    found: list[_Found] = []
    pending = [(str(source.folder), 0)]
    looked_at = 0
    while pending:
        folder, depth = pending.pop()
        looked_at += 1
        if looked_at > most:
            reason = f"more than {most:,} folders; name a folder that has only skills"
            return [*found, _Found(str(source.folder), reason=reason)]
        package = _package(folder) if depth else None
        if package is not None:
            found.append(package)
        elif depth <= MAX_DEPTH:
            below, problems = _folders_in(folder)
            found += problems
            pending += ((each, depth + 1) for each in reversed(below))
    return [each for each in found if not _is_link_within_project(source, each)]


def _is_link_within_project(source: SkillSource, found: _Found) -> bool:
    """Return whether a project's skill is a link to its other folder: installers add it to both so."""
    if source.name not in PROJECT_FOLDERS or found.reason is None:
        return False
    project, target = source.folder.parents[1].resolve(), Path(found.path).resolve()
    return any(target.is_relative_to(project / folder) for folder in PROJECT_FOLDERS)


def _package(folder: str) -> _Found | None:
    """Return the `SKILL.md` of a folder; None if there is none."""
    file = f"{folder}/{SKILL_FILE}"
    try:
        about = os.lstat(file)
    except OSError:
        return None
    stamp = (about.st_mtime_ns, about.st_size, about.st_ino, about.st_mode)
    if stat.S_ISLNK(about.st_mode):
        return _Found(file, stamp, "it is a link; put the file itself there")
    if not stat.S_ISREG(about.st_mode):
        return _Found(file, stamp, "it is not a regular file")
    if about.st_size > MAX_FILE_BYTES:
        return _Found(file, stamp, f"larger than {MAX_FILE_BYTES:,} bytes")
    return _Found(file, stamp)


def _folders_in(folder: str) -> tuple[list[str], list[_Found]]:
    """Return the folders below one that may have skills, and what is there but not read."""
    folders: list[str] = []
    problems: list[_Found] = []
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            problems.append(_Found(folder, reason=error.strerror or str(error)))
        return folders, problems
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_SCANNED:
            continue
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
        elif entry.is_symlink():
            if Path(entry.path, SKILL_FILE).exists():
                problems.append(_Found(entry.path, reason="it is a link; put the folder itself there"))
        elif entry.name == SKILL_FILE:
            reason = "put it in a folder of its own, with the skill's name"
            problems.append(_Found(entry.path, reason=reason))
        elif entry.name.lower() == SKILL_FILE.lower():
            problems.append(_Found(entry.path, reason=f"its name must be {SKILL_FILE}"))
    return folders, problems


def skills_of(loaded: LoadedSettings, paths: Paths) -> Skills:
    """Return the skills that the settings name; `paths` has the users' folders."""
    disabled = [name for name, skill in loaded.extensions.skills.items() if not skill.enabled]
    return Skills(skill_folders(loaded, paths), disabled=disabled)


def skill_folders(loaded: LoadedSettings, paths: Paths) -> SkillFolders:
    """Return the folders of skills that the settings name; `paths` has the users' folders."""
    settings = loaded.settings.skills
    is_named = settings.path or loaded.env.get("DEER_FLOW_SKILLS_PATH")
    return SkillFolders(
        loaded.skills_root,
        container_path=settings.container_path,
        users=paths.skills,
        paths=tuple(loaded.project_root / Path(path).expanduser() for path in settings.paths),
        projects=tuple(loaded.project_root / Path(path).expanduser() for path in settings.trusted_projects),
        shipped=None if is_named else shipped_skills(),
    )
