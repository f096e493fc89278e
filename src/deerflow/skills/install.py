"""Installs skills from archives, folders and catalogues, and updates them without losing the user's changes.

An update compares three states of each file: as it was installed, as it is now, and as the update has it.
"""

import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from deerflow.domain import DEFAULT_USER
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.skills.archive import unpack
from deerflow.skills.loader import Skills
from deerflow.skills.package_files import copy_package
from deerflow.skills.read import read_skill
from deerflow.skills.skill import SKILL_FILE, Skill
from deerflow.skills.versions import (
    CustomSkills,
    FileContent,
    Package,
    SkillChange,
    StoredFile,
    Version,
    package_digest_of,
    read_package,
    stored_files,
)

OnConflict = Literal["refuse", "mine", "theirs"]
RESERVED_NAMES = frozenset({"custom", "install", "reload", "search"})
"""Parts of the API's paths after `/skills/`."""
_SHOWN_CONFLICTS = 10
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u03bf\u03b1\u03bd\u0131",
    "aeopcyxijsdoavi",
)
"""Letters of other alphabets that look like Latin ones."""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """How a package is installed."""

    source: str
    """Where it is from, for people."""
    author: str = "user"
    is_update: bool = False
    """Update the skill if it is installed already; otherwise that is a conflict."""
    on_conflict: OnConflict = "refuse"
    """Which side to take in files that both the user and the update changed."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What an installation did."""

    skill: Skill
    version: Version
    is_update: bool = False
    is_changed: bool = True
    """False if the installed skill was up to date."""
    kept: tuple[str, ...] = ()
    """Files in which the user's changes were kept."""
    replaced: tuple[str, ...] = ()
    """Files in which the user's changes were replaced."""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What an installation would write; nothing is written yet."""

    name: str
    package: Package
    base: Package
    """The files in use; none for a new skill."""
    change: SkillChange
    is_update: bool
    is_changed: bool
    merged: "Merged"


class SkillInstaller:
    """Installs into the custom skills of one user; methods block and belong into a thread."""

    def __init__(self, skills: Skills, custom: CustomSkills, *, user: str = DEFAULT_USER) -> None:
        self._skills = skills
        self._custom = custom
        self._user = user

    def plan_archive(self, file: BinaryIO, options: InstallOptions) -> InstallPlan:
        """Check a `.skill` archive, ZIP or gzipped tar."""
        with _new_package() as package:
            unpack(file, package)
            return self.plan_package(package, options)

    def plan_path(self, path: Path, options: InstallOptions) -> InstallPlan:
        """Check a folder with a `SKILL.md`, or an archive."""
        if not path.is_dir():
            try:
                with path.open("rb") as file:
                    return self.plan_archive(file, options)
            except OSError as error:
                raise InvalidInputError(f"'{path}' cannot be read: {error.strerror or error}") from error
        if not (path / SKILL_FILE).is_file():
            raise InvalidInputError(f"the folder {path} has no {SKILL_FILE}")
        with _new_package() as package:
            copy_package(path, package)
            return self.plan_package(package, options)

    def plan_package(
        self, folder: Path, options: InstallOptions, *, expected_name: str | None = None
    ) -> InstallPlan:
        """Check a folder of our own, which nobody else changes: its name, the scan, the user's changes."""
        name = _read(folder / SKILL_FILE).name
        if expected_name is not None and name != expected_name:
            raise InvalidInputError(f"the package of '{expected_name}' has a skill named '{name}'")
        self._skills.refresh()
        is_installed = self._check_name(name)
        if is_installed and not options.is_update:
            raise ConflictError(
                f"there is a custom skill '{name}' already; update it instead (--update, or update=true), "
                "remove it or rename this one"
            )
        self._custom.check(name, folder)  # before anything is written: not even a lock is left behind
        theirs = read_package(folder)
        mine = self._custom.read(name) if is_installed else {}
        installed = self._installed_files(name) if is_installed else {}
        merged = merge(installed, mine, theirs, on_conflict=options.on_conflict)
        if merged.conflicts:
            raise _conflict(name, merged.conflicts)
        change = SkillChange(
            author=options.author,
            reason=f"{'updated' if is_installed else 'installed'} from {options.source}",
            action="install",
            origin=_origin(theirs, options.source),
        )
        is_changed = merged.package != mine or stored_files(theirs) != installed
        return InstallPlan(name, merged.package, mine, change, is_installed, is_changed, merged)

    def apply(self, plan: InstallPlan, checks: Mapping[str, Any] | None = None) -> Installation:
        """Write what was planned; raise `ConflictError` if the skill has changed since."""
        current = None if plan.is_changed else self._custom.current(plan.name)
        if current is None:
            change = replace(plan.change, checks=checks or {})
            expected = package_digest_of(plan.base) if plan.is_update else ""
            current = self._custom.write(plan.name, plan.package, change, expected=expected)
            self._skills.refresh()
        return Installation(
            _read(self._custom.folder(plan.name) / SKILL_FILE),
            current,
            is_update=plan.is_update,
            is_changed=plan.is_changed,
            kept=plan.merged.kept,
            replaced=plan.merged.replaced,
        )

    def _installed_files(self, name: str) -> dict[str, StoredFile]:
        """Return the files of the package as it was installed last; none if it was not installed."""
        for version in reversed(self._custom.history(name)):
            if version.action == "delete":
                break
            if version.origin:
                return {path: StoredFile(**stored) for path, stored in version.origin["files"].items()}
        return {}

    def _check_name(self, name: str) -> bool:
        """Return whether a custom skill of this name is there; raise for names of other skills."""
        if name in RESERVED_NAMES:
            raise InvalidInputError(f"a skill cannot be named '{name}': the API uses this name; rename it")
        for known in self._skills.all(user=self._user):
            is_own = known.is_editable and known.folder == self._custom.root / name
            if known.name == name and not is_own:
                raise ConflictError(
                    f"there is a {known.category} skill '{name}' already ({known.source}); "
                    "remove it or rename this one"
                )
            if known.name != name and not known.is_editable and _plain(known.name) == _plain(name):
                raise ConflictError(
                    f"the name '{name}' can be mistaken for the {known.category} skill '{known.name}'; "
                    "rename this one"
                )
        is_there = (self._custom.root / name / SKILL_FILE).is_file()
        if not is_there and (self._custom.root / name).exists():
            raise ConflictError(f"the folder {self._custom.root / name} is there already; remove it first")
        return is_there


@dataclass(frozen=True, slots=True)
class Merged:
    """The files of an update, and what it means for the user's changes."""

    package: Package
    kept: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def merge(
    base: Mapping[str, StoredFile], mine: Package, theirs: Package, *, on_conflict: OnConflict = "refuse"
) -> Merged:
    """Combine the changes of the user and of an update, file by file.

    Args:
        base: The files as they were installed; empty if that is unknown: every difference is a conflict then.
    """
    ours, updated = stored_files(mine), stored_files(theirs)
    package: dict[str, FileContent] = {}
    changed: dict[str, list[str]] = {"kept": [], "replaced": [], "conflicts": []}
    for path in sorted({*ours, *updated}):
        before, own, new = base.get(path), ours.get(path), updated.get(path)
        takes_mine = new == before
        if own not in (before, new):  # the user changed it, in another way than the update
            takes_mine = takes_mine or on_conflict == "mine"
            is_conflict = new != before and on_conflict == "refuse"
            changed["conflicts" if is_conflict else "kept" if takes_mine else "replaced"].append(path)
        chosen = (mine if takes_mine else theirs).get(path)
        if chosen is not None:
            package[path] = chosen
    return Merged(package, *(tuple(paths) for paths in changed.values()))


def _conflict(name: str, paths: tuple[str, ...]) -> ConflictError:
    shown = ", ".join(paths[:_SHOWN_CONFLICTS])
    more = f" and {len(paths) - _SHOWN_CONFLICTS} more" if len(paths) > _SHOWN_CONFLICTS else ""
    return ConflictError(
        f"you and the update both changed files of '{name}', nothing was changed: {shown}{more}. Take one "
        "side: on_conflict 'mine' or 'theirs' (--keep-mine, --take-theirs)"
    )


def _origin(package: Package, source: str) -> dict[str, Any]:
    files = {
        path: {"sha256": stored.sha256, "size": stored.size, "is_executable": stored.is_executable}
        for path, stored in stored_files(package).items()
    }
    return {"source": source, "digest": package_digest_of(package), "files": files}


@contextmanager
def _new_package() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="deerflow-skill-") as folder:
        yield Path(folder, "-")  # no usable name: a SKILL.md without a name is refused


def _read(file: Path) -> Skill:
    try:
        return read_skill(file, category="custom", path=str(file))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the package's {SKILL_FILE} cannot be used: {error}") from error


def _plain(name: str) -> str:
    """Return a name without differences that people overlook."""
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)
    return folded.replace("_", "").replace("-", "").replace("0", "o").replace("1", "l")
