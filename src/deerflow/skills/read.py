"""Reads a `SKILL.md`: what can be used is used, with a warning for what the format does not allow.

The keys are those of the public Agent Skills format and DeerFlow's own; keys of other agents are ignored.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deerflow.domain.regular_files import read_regular_text
from deerflow.skills.front_matter import FrontMatter, FrontMatterError, repaired_front_matter
from deerflow.skills.skill import RequiredSecret, Skill, SkillProblem

MAX_FILE_BYTES = 1_000_000
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_COMPATIBILITY_CHARS = 500
_UNUSABLE_NAME_CHARS = 128
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_TOOL = re.compile(r"([^\s,()]+)(?:\(([^()]*)\))?")

TOOLS_OF_OTHER_AGENTS: Mapping[str, tuple[str, ...]] = {
    "agent": ("task",),
    "askuserquestion": ("ask_clarification",),
    "bash": ("bash", "python"),
    "edit": ("str_replace", "edit_files"),
    "glob": ("glob",),
    "grep": ("grep",),
    "ls": ("ls",),
    "multiedit": ("str_replace", "edit_files"),
    "read": ("read_file",),
    "shell": ("bash", "python"),
    "task": ("task",),
    "todowrite": ("write_todos",),
    "webfetch": ("web_fetch",),
    "websearch": ("web_search",),
    "write": ("write_file",),
}
"""DeerFlow's tools for the names, in lower case, that public skills use."""


def read_skill(
    file: Path, *, category: str, path: str, source: str | None = None, is_editable: bool | None = None
) -> Skill:
    """Return the skill that `file` describes; raise `ValueError` (with `line`) if it cannot be used.

    Args:
        path: Path of the file in sandboxes.
        source: Where it was found; by default the category.
    """
    matter = repaired_front_matter(_text(file))
    return _Reader(file, matter).skill(
        category=category,
        path=path,
        source=source or category,
        is_editable=category == "custom" if is_editable is None else is_editable,
    )


def _text(file: Path) -> str:
    try:
        return read_regular_text(file, max_bytes=MAX_FILE_BYTES)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        is_utf16 = error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
        found = "UTF-16" if is_utf16 else f"the byte 0x{error.object[error.start]:02x}"
        raise FrontMatterError(f"{found} is not UTF-8 text; save the file as UTF-8", line) from error


class _Reader:
    """Converts the keys of one front matter, and collects the warnings about them."""

    def __init__(self, file: Path, matter: FrontMatter) -> None:
        self._file = file
        self._matter = matter
        self._warnings: list[SkillProblem] = []

    def skill(self, *, category: str, path: str, source: str, is_editable: bool) -> Skill:
        for key in self._matter.repaired:
            self._warn(key.partition(".")[0], f"'{key}' is no YAML: put its text in quotes")
        for key in self._matter.repeated:
            self._warn(key, f"'{key}' is there more than once; the last one is used")
        return Skill(
            name=self._name(),
            description=self._description(),
            category=category,
            path=path,
            file=self._file,
            license=self._optional_text("license"),
            compatibility=self._limited("compatibility", MAX_COMPATIBILITY_CHARS),
            metadata=self._metadata(),
            version=self._own_or_metadata("version"),
            author=self._own_or_metadata("author"),
            allowed_tools=self._allowed_tools(),
            dependencies=self._dependencies(),
            required_secrets=self._required_secrets(),
            secrets_autonomous=self._flag("secrets-autonomous", default=True),
            is_editable=is_editable,
            source=source,
            warnings=tuple(self._warnings),
        )

    def _warn(self, key: str, reason: str) -> None:
        self._warnings.append(SkillProblem(self._file, self._line(key), reason, "warning"))

    def _line(self, key: str) -> int | None:
        return self._matter.lines.get(key)

    def _get(self, key: str) -> Any:
        return self._matter.keys.get(key)

    def _name(self) -> str:
        folder = self._file.parent.name
        value = self._get("name")
        text = scalar_text(value) if not isinstance(value, bool) else ""
        if not text:
            name = usable_name(folder)
            if name is None:
                raise FrontMatterError("'name' is missing; write 'name: ' and the folder's name", None)
            self._warn("name", f"'name' is missing; the folder's name {name!r} is used")
            return name
        name = usable_name(text)
        if name is None:
            raise FrontMatterError(
                f"'name' is {text[:80]!r}; use letters, digits and single hyphens, at most {MAX_NAME_CHARS}",
                self._line("name"),
            )
        if name != text:
            self._warn("name", f"'name' is {text[:80]!r}; it is used as {name!r}: write it so")
        elif len(name) > MAX_NAME_CHARS:
            self._warn("name", f"'name' has {len(name)} characters; the format allows {MAX_NAME_CHARS}")
        elif name != folder and name != unicodedata.normalize("NFC", folder):
            self._warn("name", f"'name' is {name!r}, but the folder is {folder!r}; give both one name")
        return name

    def _description(self) -> str:
        text = " ".join(scalar_text(self._get("description")).split())
        if not text:
            raise FrontMatterError(
                "'description' is missing; say in a sentence what the skill is for and when to use it",
                self._line("description"),
            )
        if len(text) > MAX_DESCRIPTION_CHARS:
            self._warn(
                "description",
                f"'description' has {len(text)} characters; the first {MAX_DESCRIPTION_CHARS} are used",
            )
        # Without angle brackets: it becomes part of the system prompt.
        return text.replace("<", "‹").replace(">", "›")[:MAX_DESCRIPTION_CHARS]

    def _optional_text(self, key: str) -> str | None:
        value = self._get(key)
        text = scalar_text(value).strip()
        if value is not None and not text:
            self._warn(key, f"'{key}' must be a text; it is ignored")
        return text or None

    def _limited(self, key: str, limit: int) -> str | None:
        text = self._optional_text(key)
        if text is not None and len(text) > limit:
            self._warn(key, f"'{key}' has {len(text)} characters; the first {limit} are used")
            return text[:limit]
        return text

    def _metadata(self) -> Mapping[str, Any]:
        value = self._get("metadata")
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._warn("metadata", "'metadata' must be keys with values; it is ignored")
            return {}
        return {key: scalar_text(entry) for key, entry in value.items() if isinstance(key, str)}

    def _own_or_metadata(self, key: str) -> str | None:
        """Return DeerFlow's own key, or what the public format keeps under `metadata`."""
        if self._get(key) is not None:
            return self._optional_text(key)
        metadata = self._get("metadata")
        return scalar_text(metadata.get(key)).strip() or None if isinstance(metadata, dict) else None

    def _allowed_tools(self) -> tuple[str, ...] | None:
        value = self._get("allowed-tools")
        match value:
            case None:
                return None
            case str():
                entries = [match.groups() for match in _TOOL.finditer(value)]
            case list() if all(isinstance(entry, str) for entry in value):
                entries = [match.groups() for entry in value for match in _TOOL.finditer(entry)]
            case _:
                raise FrontMatterError(
                    "'allowed-tools' must be a list of tool names; without it every tool is allowed",
                    self._line("allowed-tools"),
                )
        names = [name for tool, pattern in entries for name in self._tools(tool, pattern)]
        return tuple(dict.fromkeys(names))

    def _tools(self, tool: str, pattern: str | None) -> tuple[str, ...]:
        """Return DeerFlow's tools for one entry; a name in capitals is another agent's."""
        if tool.startswith("mcp__"):
            found: tuple[str, ...] | None = (tool,)
        elif tool != tool.lower() or tool in ("read", "write", "edit", "agent", "shell"):
            found = TOOLS_OF_OTHER_AGENTS.get(tool.lower())
        else:
            found = ("bash", "python") if tool == "bash" else (tool,)
        if found is None:
            self._warn("allowed-tools", f"'allowed-tools' has {tool}, which has no counterpart here")
            return ()
        if not pattern:
            return found
        # A pattern for commands says nothing about Python code.
        return tuple(f"{name}({pattern})" for name in found if name != "python")

    def _dependencies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._names("dependencies", "names of skills")))

    def _names(self, key: str, kind: str) -> Iterable[str]:
        value = self._get(key)
        entries = value.replace(",", " ").split() if isinstance(value, str) else value
        if entries is None:
            return
        if not isinstance(entries, list):
            self._warn(key, f"'{key}' must be a list of {kind}; it is ignored")
            return
        for entry in entries:
            name = usable_name(scalar_text(entry))
            if name is None:
                self._warn(key, f"'{key}' must be a list of {kind}; one entry is ignored")
            else:
                yield name

    def _required_secrets(self) -> tuple[RequiredSecret, ...]:
        value = self._get("required-secrets")
        if value is None:
            return ()
        entries = value.replace(",", " ").split() if isinstance(value, str) else value
        found = [_secret(entry) for entry in entries] if isinstance(entries, list) else [None]
        if None in found:
            # Skipped, not loaded: without the secret its commands fail in ways that are hard to understand.
            raise FrontMatterError(
                "'required-secrets' must be a list of names such as API_KEY, or of {name: …, optional: true}",
                self._line("required-secrets"),
            )
        return tuple(dict.fromkeys(secret for secret in found if secret is not None))

    def _flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self._warn(key, f"'{key}' must be true or false; it is read as false")
        return False


def usable_name(text: str) -> str | None:
    """Return `text` as a skill's name: lower case, words joined by hyphens; None if nothing sensible is left.

    Path separators, control characters and other signs that could be mistaken for something else make a
    name unusable.
    """
    plain = unicodedata.normalize("NFC", text.strip())
    if not plain or "/" in plain or "\\" in plain or ".." in plain or not plain.isprintable():
        return None
    # Categories L, M, N: letters, the marks that many scripts write with them, and digits.
    words = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in plain.lower())
    name = "-".join(words.split())
    return name if name and len(name) <= _UNUSABLE_NAME_CHARS else None


def scalar_text(value: object) -> str:
    """Return a scalar as text; empty for None and collections, whose text may exceed memory by aliases."""
    if value is None or isinstance(value, dict | list | set | tuple):
        return ""
    try:
        return str(value)
    except ValueError:  # a number with thousands of digits
        return ""


def _secret(entry: object) -> RequiredSecret | None:
    match entry:
        case str():
            name, is_optional = entry, False
        case {"name": str() as name}:
            is_optional = isinstance(entry, dict) and entry.get("optional") is True
        case _:
            return None
    return RequiredSecret(name, is_optional) if _SECRET.fullmatch(name) else None
