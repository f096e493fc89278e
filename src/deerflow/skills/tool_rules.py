"""Checks tool calls against the `allowed-tools` of skills.

Entries are names of tools (`read_file`), names with `*` (`memory_*`), and both with a pattern for the call:
`bash(git:*)`, `read_file(/mnt/user-data/**)`, `web_fetch(domain:example.com)`.

A pattern for commands must match every command of a line. Constructs whose commands cannot be seen in the
text (substitutions, redirections to files) match no pattern.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

SHELL = "bash"
_TOGETHER: Mapping[str, tuple[str, ...]] = {
    "task": ("task", "task_status", "task_result", "task_message", "task_cancel"),
    "read_file": ("read_file", "view_image"),
    "grep": ("grep", "search_files"),
}
"""Tools that one name allows together."""

ALWAYS_ALLOWED = frozenset({"ask_clarification", "present_files", "write_todos", "tool_search", "find_skill"})
"""Tools that every skill may use: they ask the user, show results, plan, and find tools and skills."""
_READING = frozenset({"read_file", "ls", "glob", "grep"})
TOOL_RESULTS = "/mnt/user-data/outputs/.tool-results"
"""Folder of long tool results, which belong to allowed calls."""
_ENTRY = re.compile(r"([^\s(),]+)(?:\((.*)\))?", re.DOTALL)
_SCHEME = "mcp__"
_DOMAIN = "domain:"
_ANY_ARGUMENTS = ":*"


@dataclass(frozen=True, slots=True)
class ToolRule:
    """One entry of `allowed-tools`."""

    text: str
    names: tuple[str, ...]
    pattern: str | None = None

    @classmethod
    def of(cls, text: str) -> "ToolRule":
        """Parse an entry; one that cannot be parsed matches no call."""
        match = _ENTRY.fullmatch(text.strip())
        if match is None:
            return cls(text, ())
        name, pattern = match[1], match[2]
        names = _TOGETHER.get(name, (name,))
        if name.startswith(_SCHEME):
            server, _, tool = name.removeprefix(_SCHEME).partition("__")
            names = (name, tool, f"{server}_{tool}") if tool else (f"{server}_*",)
        return cls(text, names, pattern or None)

    def permits(self, name: str, args: Mapping[str, Any]) -> bool:
        """Return whether this entry allows the call."""
        if not any(fnmatchcase(name, known) for known in self.names):
            return False
        if self.pattern is None:
            return True
        if name == SHELL:
            return False  # the commands of one line may need several entries
        if self.pattern.startswith(_DOMAIN):
            return _permits_address(self.pattern.removeprefix(_DOMAIN), args.get("url"))
        path = args.get("path", args.get("image_path"))
        shown = posixpath.normpath(path) if isinstance(path, str) else " ".join(map(str, args.values()))
        return fnmatchcase(shown, self.pattern)


class ToolRules:
    """The tools that skills allow, beside those that every skill may use."""

    def __init__(self, entries: Sequence[str], *, skills_path: str) -> None:
        self.rules = tuple(ToolRule.of(entry) for entry in _whole_entries(entries))
        self._readable = (skills_path.rstrip("/"), TOOL_RESULTS)

    def permits(self, name: str, args: Mapping[str, Any]) -> bool:
        """Return whether the skills allow the call."""
        if name in ALWAYS_ALLOWED or any(rule.permits(name, args) for rule in self.rules):
            return True
        if name == SHELL:
            return self._permits_command(args.get("command"))
        return name in _READING and self._is_readable(args.get("path"))

    def has_patterns(self, name: str) -> bool:
        """Return whether only some commands are allowed."""
        return name == SHELL and any(rule.pattern and SHELL in rule.names for rule in self.rules)

    def _permits_command(self, line: object) -> bool:
        """Return whether each command of a line fits a pattern."""
        patterns = [rule.pattern for rule in self.rules if rule.pattern and SHELL in rule.names]
        commands = simple_commands(line) if patterns and isinstance(line, str) else None
        return bool(commands) and all(
            any(_fits(pattern, command) for pattern in patterns) for command in commands or ()
        )

    def _is_readable(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        normal = posixpath.normpath(path)
        return any(normal == folder or normal.startswith(f"{folder}/") for folder in self._readable)

    def __str__(self) -> str:
        return ", ".join(rule.text for rule in self.rules) or "none"


def _whole_entries(entries: Sequence[str]) -> Iterator[str]:
    """Yield the entries; `Bash(git status:*)` that was split at its spaces is joined again."""
    held = ""
    for entry in entries:
        held = f"{held} {entry}" if held else entry
        if held.count("(") <= held.count(")"):
            yield held
            held = ""
    if held:
        yield held


def _permits_address(domain: str, url: object) -> bool:
    host = (urlsplit(url).hostname or "") if isinstance(url, str) else ""
    return host == domain or host.endswith(f".{domain}")


def _fits(pattern: str, command: str) -> bool:
    if pattern.endswith(_ANY_ARGUMENTS):
        start = pattern.removesuffix(_ANY_ARGUMENTS)
        return command == start or command.startswith(f"{start} ")
    return fnmatchcase(command, pattern)


_TOKEN = re.compile(
    r"'[^']*'"
    r'|"(?:[^"\\$`]|\\.|\$(?![(\'"]))*"'
    r"|\\."
    r"|(?P<ignored>\d?>(?:&\d|\s*/dev/null)(?=[\s;&|]|\Z))"
    r"|(?P<separator>&&|\|\||[;&|\n])"
    r"|(?P<hidden>[`<>]|\$[('\"]|['\"\\])"
    r"|.",
    re.DOTALL,
)


def simple_commands(line: str) -> list[str] | None:
    """Return the commands of a shell line; None if it has commands or files that the text does not show."""
    found = [""]
    for token in _TOKEN.finditer(line):
        match token.lastgroup:
            case "hidden":  # a substitution, a redirection, or a quote that does not end
                return None
            case "separator":
                found.append("")
            case "ignored":
                pass
            case _:
                found[-1] += token[0]
    return [command for each in found if (command := " ".join(each.split()))]
