"""Drops the parts of a settings file that need an unset variable, so that the rest still loads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deerflow.config.check import dotted
from deerflow.config.effect import WAITING
from deerflow.config.section import is_listed
from deerflow.config.variables import Unset
from deerflow.config.yaml_file import Document, KeyPath
from deerflow.errors import ConfigError

_ENTRIES: tuple[KeyPath, ...] = (
    ("models",),
    ("tools",),
    ("plugins",),
    ("acp_agents",),
    ("channels",),
    ("sandbox", "environment"),
    ("sandbox", "mounts"),
    ("subagents", "custom_agents"),
    ("teams", "roles"),
    ("extensions", "mcpServers"),
    ("auth", "oidc", "providers"),
)
"""Sections of which a single entry is dropped; of all others the whole section is dropped."""

_VITAL = frozenset({"auth", "authorization", "checkpointer", "database", "guardrails"})
"""Sections that never fall back to defaults: that would hide stored data or weaken access control."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A dropped part of the settings, and how to fix it."""

    key: str
    text: str
    fix: str = "set it in the environment or in .env"

    def __str__(self) -> str:
        return f"{self.key}: {self.text}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Kept:
    """The remaining contents of a file, and the dropped parts."""

    data: dict[str, Any]
    problems: list[Problem]
    indices: dict[str, list[int]]
    """For every list section: the index in the file of each remaining entry."""

    def place_in_file(self, path: KeyPath) -> KeyPath:
        """Return the path in the file for a path in `data`."""
        match path:
            case (str(section), int(index), *rest) if section in self.indices:
                return (section, self.indices[section][index], *rest)
        return path


def left_out(data: dict[str, Any], unset: list[Unset], document: Document | None = None) -> Kept:
    """Drop the parts of `data` with an unset variable, except disabled parts and keys without effect."""
    needed: dict[KeyPath, list[Unset]] = {}
    for place in unset:
        part = _part_of(place.path)
        if not _is_switched_off(data, part) and not _has_no_effect(place.path):
            needed.setdefault(part, []).append(place)
    _refuse_vital(needed, document or Document(None, data))
    indices = {
        section: [index for index in range(len(entries)) if (section, index) not in needed]
        for section, entries in data.items()
        if isinstance(entries, list)
    }
    gone = [_at(data, part).get("name") for part in needed if part[0] == "models" and len(part) == 2]
    kept = _without(data, set(needed), ())
    _drop_fallbacks(kept, gone)
    return Kept(kept, list(_problems(needed)), indices)


def _part_of(path: KeyPath) -> KeyPath:
    for entries in _ENTRIES:
        if path[: len(entries)] == entries and len(path) > len(entries):
            return path[: len(entries) + 1]
    return path[:1]


def _is_switched_off(data: Any, part: KeyPath) -> bool:
    around = (_at(data, part[:length]) for length in range(1, len(part) + 1))
    return any(isinstance(found, dict) and found.get("enabled") is False for found in around)


def _has_no_effect(path: KeyPath) -> bool:
    """Return whether a key has no effect yet, although its section has."""
    return any(is_listed(path[:length], WAITING) for length in range(2, len(path) + 1))


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _refuse_vital(needed: dict[KeyPath, list[Unset]], document: Document) -> None:
    wrong = [
        place for part, places in needed.items() if part in {(name,) for name in _VITAL} for place in places
    ]
    if wrong:
        lines = [
            f"{dotted(place.path)}{document.at(place.path)} needs {place.variable}, which is not set"
            for place in wrong
        ]
        where = document.path or "settings"
        raise ConfigError(f"{where}: {'; '.join(lines)}; set it in the environment or in .env")


def _without(value: Any, gone: set[KeyPath], path: KeyPath) -> Any:
    match value:
        case dict():
            return {
                key: _without(inner, gone, (*path, key))
                for key, inner in value.items()
                if (*path, key) not in gone
            }
        case list():
            return [
                _without(inner, gone, (*path, index))
                for index, inner in enumerate(value)
                if (*path, index) not in gone
            ]
    return value


def _drop_fallbacks(data: dict[str, Any], gone: list[Any]) -> None:
    """Remove dropped models from the `fallbacks` of the remaining ones."""
    for model in data.get("models") or [] if gone else []:
        if isinstance(model, dict) and isinstance(model.get("fallbacks"), list):
            model["fallbacks"] = [name for name in model["fallbacks"] if name not in gone]


def _problems(needed: dict[KeyPath, list[Unset]]) -> Iterator[Problem]:
    for part, places in needed.items():
        variables = sorted({place.variable for place in places})
        names = f"{' and '.join(variables)} {'is' if len(variables) == 1 else 'are'} not set"
        users = ", ".join(dotted(place.path) for place in places)
        yield Problem(dotted(part), f"left out: {names}, but used by {users}")
