"""A skill: a folder with a `SKILL.md`, and what its front matter says."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SKILL_FILE = "SKILL.md"
ProblemLevel = Literal["skipped", "warning", "shadowed"]


@dataclass(frozen=True, slots=True)
class SkillProblem:
    """What is wrong with a file of a skill, for the person who can correct it."""

    file: Path
    line: int | None
    reason: str
    level: ProblemLevel
    """`skipped`: not loaded; `warning`: loaded; `shadowed`: another skill of the same name is used."""

    def __str__(self) -> str:
        line = "" if self.line is None else f" line {self.line}"
        return f"{self.file}{line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RequiredSecret:
    """A secret that a skill's commands need, by the name of its environment variable."""

    name: str
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Skill:
    """Metadata of one skill, from its front matter."""

    name: str
    description: str
    category: str
    """`custom` for the user's own skills, `public` for all others."""
    path: str
    """Path of its `SKILL.md` in the sandbox: `/mnt/skills/{category}/{folder}/SKILL.md`."""
    file: Path
    """Path of its `SKILL.md` on this host."""
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    version: str | None = None
    author: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    """Names of DeerFlow's tools; None: all."""
    dependencies: tuple[str, ...] = ()
    """Names of skills that are used with this one."""
    required_secrets: tuple[RequiredSecret, ...] = ()
    secrets_autonomous: bool = True
    """The secrets are given to the skill's commands without a question to the user."""
    is_editable: bool = False
    source: str = "public"
    """Where it was found: `public`, `custom`, `skills.paths[0]`, `.agents/skills` or `.claude/skills`."""
    warnings: tuple[SkillProblem, ...] = ()

    @property
    def mark(self) -> str:
        """Where it comes from and whether the agent may change it, for the model."""
        if self.is_editable:
            return "[custom, editable]"
        if self.source == "public":
            return "[built-in]"
        return "[shared]" if self.source.startswith("skills.paths") else "[project]"

    @property
    def folder(self) -> Path:
        """The folder of the package on this host."""
        return self.file.parent


def package_digest(folder: Path) -> str:
    """Return the SHA-256 over the paths, execute bits and contents of a package's files."""
    digest = hashlib.sha256()
    for name, path in sorted(_files(folder)):
        about = path.lstat()
        if stat.S_ISREG(about.st_mode):
            kind, content = ("x" if about.st_mode & stat.S_IXUSR else "-"), _content_digest(path)
        elif stat.S_ISLNK(about.st_mode):
            kind, content = "l", hashlib.sha256(os.fsencode(path.readlink())).digest()
        else:  # a pipe or device: reading it may block
            kind, content = "?", b""
        digest.update(os.fsencode(name) + b"\0" + kind.encode() + content)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in (*files, *links):
            path = Path(here, name)
            yield path.relative_to(folder).as_posix(), path


def _content_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
