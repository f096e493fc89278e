"""Finds out which skills a message or a tool call uses, and returns their text for the model."""

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from deerflow.domain.regular_files import read_regular_text
from deerflow.domain.tags import neutralise
from deerflow.skills.front_matter import FRONT_MATTER
from deerflow.skills.read import MAX_FILE_BYTES
from deerflow.skills.skill import SKILL_FILE, Skill

RESERVED = frozenset({"bootstrap", "goal", "help", "memory", "models", "new", "status"})
"""Words after a slash that are commands of DeerFlow's clients."""
_SLASH = re.compile(r"/([^\s/]+)(?:\s+|\Z)")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ROOT_FOLDERS = frozenset(
    (
        *("applications", "bin", "boot", "data", "dev", "etc", "home", "lib", "lib64", "library", "media"),
        *("mnt", "net", "opt", "private", "proc", "root", "run", "sbin", "srv", "sys", "system", "tmp"),
        *("usr", "users", "var", "volumes", "workspace"),
    )
)
"""First parts of absolute paths, which are no misspelt skills."""
_NEAR = 0.75
_MAX_NEAR = 3
_MAX_LISTED = 20
_UNKNOWN = {
    "unknown": ("There is no skill “{name}”. ", "没有名为“{name}”的技能。"),
    "near": ("Did you mean {names}?", "您是否想用 {names}？"),
    "all": ("The skills are: {names}", "可用的技能：{names}"),
    "none": ("There are no other skills either.", "也没有其他技能。"),
}
"""In English and Chinese."""
_OR = (" or ", " 或 ")
MAX_BODY_CHARS = 60_000
MAX_RESOURCES = 200
_NOT_LISTED = frozenset({"evals", "__pycache__", "node_modules"})
_TELLING_CHARS = 30
"""Shorter lines occur in many files."""
_TELLING_LINES = 2


def slash_name(text: str) -> str | None:
    """Return the word after the slash with which a message begins; None for paths and reserved words."""
    match = _SLASH.match(text)
    return match[1] if match is not None and match[1] not in RESERVED else None


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are similar to a misspelt one."""
    return get_close_matches(name.casefold(), sorted(known), n=_MAX_NEAR, cutoff=_NEAR)


def unknown_skill(text: str, name: str, known: Iterable[str], *, is_chinese: bool = False) -> str | None:
    """Return the answer to a message that begins with an unknown skill; None if it can be plain text."""
    names = sorted(known)
    near = near_names(name, names)
    is_alone = text.strip() == f"/{name}"
    if not near and (not is_alone or _NAME.fullmatch(name) is None or name in _ROOT_FOLDERS):
        return None
    if near:
        hint = _UNKNOWN["near"][is_chinese].format(names=_OR[is_chinese].join(f"/{one}" for one in near))
    elif names:
        shown = [*(f"/{one}" for one in names[:_MAX_LISTED]), *(["…"] if len(names) > _MAX_LISTED else [])]
        hint = _UNKNOWN["all"][is_chinese].format(names=", ".join(shown))
    else:
        hint = _UNKNOWN["none"][is_chinese]
    return _UNKNOWN["unknown"][is_chinese].format(name=name) + hint


@dataclass(frozen=True, slots=True)
class WithDependencies:
    """A skill's dependencies, in the order in which they are needed, and those that are missing."""

    skills: tuple[Skill, ...]
    missing: tuple[str, ...]


def with_dependencies(skill: Skill, known: Mapping[str, Skill]) -> WithDependencies:
    """Return a skill after all skills that it depends on; cycles end at the first repetition."""
    found: dict[str, Skill | None] = {}
    missing: dict[str, None] = {}

    def visit(one: Skill) -> None:
        found[one.name] = None  # seen, and placed after its own dependencies
        for name in one.dependencies:
            if name not in known:
                missing[name] = None
            elif name not in found:
                visit(known[name])
        found[one.name] = found.pop(one.name) or one

    visit(skill)
    return WithDependencies(tuple(one for one in found.values() if one is not None), tuple(missing))


def skill_text(skill: Skill) -> str:
    """Return a skill's instructions in a tag, with the list of its files; reads the disk."""
    body = _body(skill)
    if len(body) > MAX_BODY_CHARS:
        body = f"{body[:MAX_BODY_CHARS]}\n[The rest is left out; read {skill.path} for it.]"
    folder = posixpath.dirname(skill.path)
    files = resources(skill.folder)
    listed = [f"- {folder}/{name}" for name in files[:MAX_RESOURCES]]
    if len(files) > MAX_RESOURCES:
        listed.append(f"- and {len(files) - MAX_RESOURCES} more: list {folder}")
    parts = [body.strip()]
    if listed:
        intro = "Its files, to read with read_file or to run with bash when a step needs them:"
        parts.append("\n".join([intro, *listed]))
    if skill.allowed_tools is not None:
        parts.append(
            f"While it is active, only these tools may be used: {', '.join(skill.allowed_tools) or 'none'}."
        )
    text = neutralise("\n\n".join(parts))
    return f'<active_skill name="{skill.name}" path="{neutralise(skill.path)}">\n{text}\n</active_skill>'


def _body(skill: Skill) -> str:
    text = read_regular_text(skill.file, max_bytes=MAX_FILE_BYTES)
    match = FRONT_MATTER.match(text)
    return text[match.end() :] if match else text


def resources(folder: Path) -> list[str]:
    """Return the files of a package except its `SKILL.md`, relative to its folder."""
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_LISTED)
        start = Path(here).relative_to(folder)
        found += [(start / name).as_posix() for name in sorted(files) if not name.startswith(".")]
    return [name for name in found if name != SKILL_FILE]


class SkillPaths:
    """Finds skills by the paths in tool calls."""

    def __init__(self, skills: Iterable[Skill], root: str) -> None:
        self.root = root.rstrip("/")
        self._files = {skill.path: skill for skill in skills}
        self._folders = {posixpath.dirname(path): skill for path, skill in self._files.items()}
        self._path = re.compile(re.escape(self.root) + r"/[^\s\"'`;|&<>(){}$]+")

    def file(self, path: object) -> Skill | None:
        """Return the skill whose `SKILL.md` has this path."""
        return self._files.get(posixpath.normpath(path)) if isinstance(path, str) else None

    def in_code(self, code: str) -> list[Skill]:
        """Return the skills whose folder or files a command or program names."""
        if self.root not in code:
            return []
        found = {}
        for match in self._path.finditer(code):
            skill = self._containing(posixpath.normpath(match[0]))
            if skill is not None:
                found[skill.name] = skill
        return list(found.values())

    def uses_files(self, code: str, skill: Skill) -> bool:
        """Return whether code that names a skill's folder uses a file in it, and does not only list it."""
        folder = posixpath.dirname(skill.path)
        inside = any(path[0].startswith(f"{folder}/") for path in self._path.finditer(code))
        return inside or SKILL_FILE in code or "scripts/" in code

    def may_show(self, code: str) -> bool:
        """Return whether a command may print a `SKILL.md`, whichever path it uses."""
        return self.root in code or SKILL_FILE.casefold() in code.casefold()

    def shown(self, output: str) -> list[Skill]:
        """Return the skills whose instructions are in an output; reads the disk."""
        lines = {line.strip() for line in output.splitlines()}
        return [skill for skill in self._files.values() if _is_shown(skill, lines)]

    def _containing(self, path: str) -> Skill | None:
        while len(path) > len(self.root):
            if (skill := self._folders.get(path)) is not None:
                return skill
            path = posixpath.dirname(path)
        return None


def _is_shown(skill: Skill, lines: set[str]) -> bool:
    """Return whether an output has two telling lines of a skill's instructions, or all if there are fewer."""
    try:
        body = _body(skill)
    except (OSError, ValueError):
        return False
    telling = {line for each in body.splitlines() if len(line := each.strip()) >= _TELLING_CHARS}
    return bool(telling) and len(telling & lines) >= min(_TELLING_LINES, len(telling))
