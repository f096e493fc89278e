"""Reads all settings files and the environment; parts that need an unset variable are dropped."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deerflow.config.check import UnusedKey, check, dotted, unused_keys
from deerflow.config.effect import REMOVED, WAITING, Fault
from deerflow.config.environment import Paths, SettingsFiles, find_settings_files
from deerflow.config.extensions import ExtensionsSettings
from deerflow.config.extensions_file import read_document, read_extensions, read_skill_states
from deerflow.config.section import is_listed
from deerflow.config.settings import CONFIG_VERSION, Settings
from deerflow.config.variables import Unset, substitute, variables_inside
from deerflow.config.yaml_file import Document, KeyPath, read_yaml
from deerflow.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """A dropped part of the settings, and how to fix it."""

    key: str
    text: str
    fix: str = "set it in the environment or in .env"

    def __str__(self) -> str:
        return f"{self.key}: {self.text}; {self.fix}"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The loaded settings, their sources, and the problems found in them."""

    settings: Settings
    extensions: ExtensionsSettings
    """The contents of `extensions_config.json`, overridden by `extensions:` in `config.yaml`."""
    paths: Paths
    project_root: Path
    skills_root: Path
    """The folder that contains `public/` and `custom/`; it may not exist."""
    source_path: Path | None
    """The `config.yaml` that was read; None if there is none and all settings are defaults."""
    extensions_path: Path
    """The path of the extensions file; it may not exist."""
    env: Mapping[str, str] = field(repr=False)
    """The environment, with `.env` as defaults."""
    notes: tuple[Fault, ...] = ()
    """Faults in the files other than `problems` and `unused`."""
    problems: tuple[Problem, ...] = ()
    """Parts that were dropped because they need an unset variable."""
    unused: tuple[UnusedKey, ...] = ()
    """Keys of `config.yaml` without effect."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about unused keys and faults in the files, one sentence each."""
        keys = ", ".join(map(str, self.unused))
        unused = [f"these keys of config.yaml have no effect here: {keys}"] if keys else []
        return (*unused, *map(str, self.notes))


def load_settings(
    path: Path | None = None, *, env: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> LoadedSettings:
    """Read the settings that apply in `cwd`; raise ConfigError with all errors."""
    files = find_settings_files(path, env=env, cwd=(cwd or Path.cwd()).absolute())
    return load_from(files)


def load_from(files: SettingsFiles) -> LoadedSettings:
    """Read the settings from files that are already located."""
    document = read_yaml(files.config) if files.config else Document(None, {})
    settings, problems, unused = _settings_in(document, files.env)
    from_file, unset = read_extensions(files.extensions, files.env)
    if older := read_skill_states(files.skill_states):
        from_file = from_file.model_copy(update={"skills": {**older, **from_file.skills}})
    over = {name: getattr(settings.extensions, name) for name in settings.extensions.model_fields_set}
    extensions = from_file.model_copy(update=over)
    return LoadedSettings(
        settings=settings,
        extensions=extensions,
        paths=Paths(files.home, data_root=files.data(settings.database.sqlite_dir)),
        project_root=files.project_root,
        skills_root=files.skills(settings.skills.path),
        source_path=files.config,
        extensions_path=files.new_extensions,
        env=files.env,
        notes=(
            *_newer_layout(settings),
            *_unused_extensions(extensions),
            *_unknown_extensions(from_file),
            *_inside_of_texts(document, ("models", "database"), ""),
            *_inside_of_texts(read_document(files.extensions), ("mcpServers",), "extensions."),
            *_empty_variables(unset, from_file),
        ),
        problems=tuple(problems),
        unused=tuple(unused),
    )


def _settings_in(
    document: Document, env: Mapping[str, str]
) -> tuple[Settings, list[Problem], list[UnusedKey]]:
    data, unset = substitute(document.data, env)
    kept = drop_incomplete(data, unset, document)

    def path_in_file(path: KeyPath) -> KeyPath:
        path = kept.path_in_file(path)
        return ("memory", *path[2:]) if _is_flat_memory(path, document.data) else path

    settings = check(Settings, kept.data, document, path_in_file=path_in_file)
    unused = unused_keys(settings, lambda path: document.line_of(path_in_file(path)))
    return settings, kept.problems, unused


def _is_flat_memory(path: KeyPath, data: dict[str, Any]) -> bool:
    """Return whether a key of `backend_config` is directly under `memory:` in this file."""
    return path[:2] == ("memory", "backend_config") and path[2:3] != () and path[2] in data["memory"]


def _newer_layout(settings: Settings) -> Iterator[Fault]:
    version = settings.config_version or 0
    if version > CONFIG_VERSION:
        text = f"is {version}; this DeerFlow knows layouts up to {CONFIG_VERSION}"
        yield Fault("config_version", text, is_broken=False)


def _unused_extensions(extensions: ExtensionsSettings) -> Iterator[Fault]:
    """Yield a fault for each setting in `extensions_config.json` that has no effect here."""
    unused = [
        f"mcpServers.{name}.task_toolsets"
        for name, server in extensions.mcp_servers.items()
        if server.enabled and server.extra_keys.get("task_toolsets")
    ]
    unused += [key for key in ("mcpInterceptors",) if (extensions.model_extra or {}).get(key)]
    for key in unused:
        yield Fault(f"extensions.{key}", "has no effect in this version", "take it out")


def _unknown_extensions(extensions: ExtensionsSettings) -> Iterator[Fault]:
    """Yield a fault for each unknown key in `extensions_config.json`."""
    for unused in unused_keys(extensions, lambda _: None):
        if not unused.is_known:
            fix = f"did you mean {unused.meant}?" if unused.meant else "take it out"
            is_broken = unused.meant is not None
            yield Fault(f"extensions.{unused.key}", "is not a setting", fix, is_broken=is_broken)


def _inside_of_texts(document: Document, sections: tuple[str, ...], prefix: str) -> Iterator[Fault]:
    """Yield a fault for texts such as `https://$HOST/v1`, in which the variable is not replaced."""
    for section in sections:
        for path, name in variables_inside(document.data.get(section), (section,)):
            text = f"has ${name} inside of a longer text, where it is not replaced"
            fix = "put the whole text into a variable, and write $THAT_VARIABLE instead of it"
            yield Fault(f"{prefix}{dotted(path)}{document.at(path)}", text, fix)


def _empty_variables(unset: list[Unset], extensions: ExtensionsSettings) -> Iterator[Fault]:
    """Yield a fault for each unset variable in the extensions file, unless its server is disabled."""
    for use in unset:
        if use.path[0] != "mcpServers" or extensions.mcp_servers[str(use.path[1])].enabled:
            fix = f"set {use.variable} in the environment or in .env"
            yield Fault(f"extensions.{dotted(use.path)}", f"is empty: {use.variable} is not set", fix)


_ENTRIES: tuple[KeyPath, ...] = (
    ("models",),
    ("tools",),
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

_NEVER_DROPPED = frozenset({"auth", "authorization", "checkpointer", "database", "guardrails"})
"""Sections that never fall back to defaults: that would hide stored data or weaken access control."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The remaining contents of a file, and the dropped parts."""

    data: dict[str, Any]
    problems: list[Problem]
    indices: dict[str, list[int]]
    """For every list section: the index in the file of each remaining entry."""

    def path_in_file(self, path: KeyPath) -> KeyPath:
        """Return the path in the file for a path in `data`."""
        match path:
            case (str(section), int(index), *rest) if section in self.indices:
                return (section, self.indices[section][index], *rest)
        return path


def drop_incomplete(data: dict[str, Any], unset: list[Unset], document: Document | None = None) -> Kept:
    """Drop the parts of `data` with an unset variable, except disabled parts and keys without effect."""
    needed: dict[KeyPath, list[Unset]] = {}
    for use in unset:
        part = _part_of(use.path)
        if not _is_switched_off(data, part) and not _has_no_effect(use.path):
            needed.setdefault(part, []).append(use)
    _refuse_dropping(needed, document or Document(None, data))
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
    """Return whether a key has no effect here, or not yet although its section has."""
    above = [path[:length] for length in range(1, len(path) + 1)]
    return any(is_listed(part, REMOVED) for part in above) or any(
        is_listed(part, WAITING) for part in above[1:]
    )


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _refuse_dropping(needed: dict[KeyPath, list[Unset]], document: Document) -> None:
    wrong = [
        use for part, uses in needed.items() if part in {(name,) for name in _NEVER_DROPPED} for use in uses
    ]
    if wrong:
        lines = [
            f"{dotted(use.path)}{document.at(use.path)} needs {use.variable}, which is not set"
            for use in wrong
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
    for part, uses in needed.items():
        variables = sorted({use.variable for use in uses})
        names = f"{' and '.join(variables)} {'is' if len(variables) == 1 else 'are'} not set"
        users = ", ".join(dotted(use.path) for use in uses)
        yield Problem(dotted(part), f"left out: {names}, but used by {users}")
