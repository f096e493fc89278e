"""Leaves out the parts of a file that need a variable which is not set, so that the rest still loads."""

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
"""Where a part is one entry; anywhere else it is the whole section."""

_VITAL = frozenset({"auth", "authorization", "checkpointer", "database", "guardrails"})
"""Sections that never fall back to defaults: that would lose data from sight or open a door."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the settings that fell away, and what to do about it."""

    key: str
    text: str
    fix: str = "set it in the environment or in .env"

    def __str__(self) -> str:
        return f"{self.key}: {self.text}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of a file, and what is not."""

    data: dict[str, Any]
    problems: list[Problem]
    indices: dict[str, list[int]]
    """For every section that is a list: where in the file each remaining entry stands."""

    def place_in_file(self, path: KeyPath) -> KeyPath:
        """Return the path in the file of a path in what is left."""
        match path:
            case (str(section), int(index), *rest) if section in self.indices:
                return (section, self.indices[section][index], *rest)
        return path


def left_out(data: dict[str, Any], unset: list[Unset], document: Document | None = None) -> Kept:
    """Take the parts with an unset variable out of `data`; those that nobody uses stay."""
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
    """Tell whether a key is read by nothing, though the section around it is."""
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
    """Take models that fell away off the lists of those that would have used them."""
    for model in data.get("models") or [] if gone else []:
        if isinstance(model, dict) and isinstance(model.get("fallbacks"), list):
            model["fallbacks"] = [name for name in model["fallbacks"] if name not in gone]


def _problems(needed: dict[KeyPath, list[Unset]]) -> Iterator[Problem]:
    for part, places in needed.items():
        variables = sorted({place.variable for place in places})
        names = f"{' and '.join(variables)} {'is' if len(variables) == 1 else 'are'} not set"
        users = ", ".join(dotted(place.path) for place in places)
        yield Problem(dotted(part), f"left out: {names}, but used by {users}")
