"""Loads the skills on disk: every `SKILL.md` whose front matter has a name and a description.

A skill that cannot be read is skipped with one log line; it does not affect the others.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deerflow.config.yaml_file import load_plain
from deerflow.domain.regular_files import read_regular_text
from deerflow.errors import ConfigError

logger = logging.getLogger(__name__)

SKILL_FILE = "SKILL.md"
CATEGORIES = ("public", "custom")
CONTAINER_PATH = "/mnt/skills"
RESCAN_SECONDS = 2.0
MAX_FILE_BYTES = 1_000_000
MAX_DESCRIPTION_CHARS = 1024
MAX_DEPTH = 3
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_NO_YAML = (
    yaml.YAMLError, ConfigError, ValueError, OverflowError, LookupError, AttributeError, TypeError,
)  # fmt: skip
"""Exceptions of the parser; it raises the last five for values that do not match their tag."""


@dataclass(frozen=True, slots=True)
class Skill:
    """Metadata of one skill, from its front matter."""

    name: str
    description: str
    category: str
    path: str
    """Path of its `SKILL.md` in the sandbox: `/mnt/skills/{category}/{folder}/SKILL.md`."""
    file: Path
    """Path of its `SKILL.md` on this host."""
    license: str | None = None
    allowed_tools: tuple[str, ...] | None = None


class Skills:
    """The skills under one folder; rescans the folder, so that changes on disk apply within seconds."""

    def __init__(
        self,
        root: Path | None,
        *,
        container_path: str = CONTAINER_PATH,
        disabled: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._container_path = container_path.rstrip("/")
        self._disabled = frozenset(disabled)
        self._clock = clock
        self._looked_at = float("-inf")
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._skills: tuple[Skill, ...] = ()

    def all(self) -> tuple[Skill, ...]:
        """Return every readable skill, sorted by name; a custom skill overrides a public one of its name."""
        now = self._clock()
        if self._root is not None and now - self._looked_at >= RESCAN_SECONDS:
            self._looked_at = now
            stamps = {file: stamp for _, file, stamp in _skill_files(self._root)}
            if stamps != self._stamps:
                self._skills = self._read(self._root)
                self._stamps = stamps
        return self._skills

    def enabled(self) -> tuple[Skill, ...]:
        """Return the skills that agents may use."""
        return tuple(skill for skill in self.all() if skill.name not in self._disabled)

    def _read(self, root: Path) -> tuple[Skill, ...]:
        found: dict[str, Skill] = {}
        for category, file, _ in _skill_files(root):
            path = f"{self._container_path}/{file.relative_to(root).as_posix()}"
            try:
                skill = read_skill(file, category=category, path=path)
            except (OSError, ValueError) as error:
                logger.warning("skill %s left out: %s", file, error)
                continue
            found[skill.name] = skill
        return tuple(found[name] for name in sorted(found))


def read_skill(file: Path, *, category: str, path: str) -> Skill:
    """Return the skill that `file` describes; raise `ValueError` if it is invalid."""
    matter = front_matter(read_regular_text(file, max_bytes=MAX_FILE_BYTES))
    return Skill(
        name=_name(matter),
        description=_description(matter),
        category=category,
        path=path,
        file=file,
        license=_license(matter),
        allowed_tools=_allowed_tools(matter),
    )


def front_matter(text: str) -> Mapping[str, Any]:
    """Return the YAML between the first two `---` lines."""
    match = FRONT_MATTER.match(text)
    if match is None:
        raise ValueError("it has no front matter; begin with '---', 'name:', 'description:' and '---'")
    try:
        matter = load_plain(match[1], "it")
    except _NO_YAML as error:
        raise ValueError(f"its front matter is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(matter, dict):
        raise ValueError("its front matter has no keys; write 'name: …' and 'description: …'")
    return matter


def _name(matter: Mapping[str, Any]) -> str:
    name = matter.get("name")
    if not isinstance(name, str) or len(name) > 64 or NAME.fullmatch(name) is None:
        shown = _scalar_text(name)
        found = f"{shown[:80]!r}" if isinstance(name, str) else shown or f"a {type(name).__name__}"
        raise ValueError(f"'name' is {found}; use lower-case letters, digits and single hyphens, at most 64")
    return name


def _license(matter: Mapping[str, Any]) -> str | None:
    license_ = matter.get("license")
    return None if license_ is None else _scalar_text(license_) or None


def _scalar_text(value: object) -> str:
    """Return a scalar as text; empty for collections, whose text may exceed memory through YAML aliases."""
    return "" if isinstance(value, dict | list | set | tuple) else str(value)


def _description(matter: Mapping[str, Any]) -> str:
    description = matter.get("description")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("'description' is missing; say in a sentence what the skill is for")
    # One line without angle brackets: it becomes part of the system prompt.
    line = " ".join(description.replace("<", "‹").replace(">", "›").split())
    return line[:MAX_DESCRIPTION_CHARS]


def _allowed_tools(matter: Mapping[str, Any]) -> tuple[str, ...] | None:
    tools = matter.get("allowed-tools")
    match tools:
        case None:
            return None
        case str():
            return tuple(re.split(r"[\s,]+", tools.strip())) if tools.strip() else ()
        case list() if all(isinstance(tool, str) for tool in tools):
            return tuple(tools)
        case _:
            raise ValueError("'allowed-tools' must be a list of tool names")


def _skill_files(root: Path) -> Iterator[tuple[str, Path, tuple[int, int]]]:
    """Yield category, file and (mtime, size) of every `SKILL.md`, in a stable order; ignores links."""
    for category in CATEGORIES:
        for folder, folders, files in os.walk(root / category):
            here = Path(folder)
            depth = len(here.relative_to(root / category).parts)
            folders[:] = (
                sorted(name for name in folders if not name.startswith(".")) if depth < MAX_DEPTH else []
            )
            file = here / SKILL_FILE
            if SKILL_FILE in files and not file.is_symlink():
                folders.clear()  # subfolders belong to this skill
                try:
                    stat = file.stat()
                except FileNotFoundError:  # deleted since the listing
                    continue
                yield category, file, (stat.st_mtime_ns, stat.st_size)
