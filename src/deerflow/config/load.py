"""Reads all settings files and the environment, and returns them as one value."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deerflow.config.check import check, dotted
from deerflow.config.environment import Places, find_places
from deerflow.config.extensions import ExtensionsSettings
from deerflow.config.extensions_file import read_document, read_extensions
from deerflow.config.faults import Fault
from deerflow.config.parts import Problem, left_out
from deerflow.config.paths import Paths
from deerflow.config.settings import CONFIG_VERSION, Settings
from deerflow.config.unused import UnusedKey, unused_keys
from deerflow.config.variables import Unset, substitute, variables_inside
from deerflow.config.yaml_file import Document, KeyPath, read_yaml


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
    places = find_places(path, env=env, cwd=(cwd or Path.cwd()).absolute())
    return load_from(places)


def load_from(places: Places) -> LoadedSettings:
    """Read the settings from files that are already located."""
    document = read_yaml(places.config) if places.config else Document(None, {})
    settings, problems, unused = _settings_in(document, places.env)
    from_file, unset = read_extensions(places.extensions, places.env)
    over = {name: getattr(settings.extensions, name) for name in settings.extensions.model_fields_set}
    extensions = from_file.model_copy(update=over)
    return LoadedSettings(
        settings=settings,
        extensions=extensions,
        paths=Paths(places.home, data_root=places.data(settings.database.sqlite_dir)),
        project_root=places.project_root,
        skills_root=places.skills(settings.skills.path),
        source_path=places.config,
        extensions_path=places.new_extensions,
        env=places.env,
        notes=(
            *_newer_layout(settings),
            *_unused_extensions(extensions),
            *_unknown_extensions(from_file),
            *_inside_of_texts(document, ("models", "database"), ""),
            *_inside_of_texts(read_document(places.extensions), ("mcpServers",), "extensions."),
            *_empty_variables(unset, from_file),
        ),
        problems=tuple(problems),
        unused=tuple(unused),
    )


def _settings_in(
    document: Document, env: Mapping[str, str]
) -> tuple[Settings, list[Problem], list[UnusedKey]]:
    data, unset = substitute(document.data, env)
    kept = left_out(data, unset, document)

    def place_in_file(path: KeyPath) -> KeyPath:
        path = kept.place_in_file(path)
        return ("memory", *path[2:]) if _is_flat_memory(path, document.data) else path

    settings = check(Settings, kept.data, document, place_in_file=place_in_file)
    unused = unused_keys(settings, lambda path: document.line_of(place_in_file(path)))
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
    """Yield a fault for each setting in `extensions_config.json` that has no effect yet."""
    wanted = {
        "middlewares": extensions.middlewares,
        "mcpInterceptors": extensions.mcp_interceptors,
        **{
            f"mcpServers.{name}.task_toolsets": server.task_toolsets
            for name, server in extensions.mcp_servers.items()
            if server.enabled
        },
    }
    for key in (key for key, value in wanted.items() if value):
        yield Fault(f"extensions.{key}", "has no effect in this version", "take it out")


def _unknown_extensions(extensions: ExtensionsSettings) -> Iterator[Fault]:
    """Yield a fault for each unknown key in `extensions_config.json`."""
    for unused in unused_keys(extensions, lambda _: None):
        fix = f"did you mean {unused.meant}?" if unused.meant else "take it out"
        yield Fault(f"extensions.{unused.key}", "is not a setting", fix, is_broken=unused.meant is not None)


def _inside_of_texts(document: Document, sections: tuple[str, ...], prefix: str) -> Iterator[Fault]:
    """Yield a fault for texts such as `https://$HOST/v1`, in which the variable is not replaced."""
    for section in sections:
        for path, name in variables_inside(document.data.get(section), (section,)):
            text = f"has ${name} inside of a longer text, where it is not replaced"
            fix = "put the whole text into a variable, and write $THAT_VARIABLE instead of it"
            yield Fault(f"{prefix}{dotted(path)}{document.at(path)}", text, fix)


def _empty_variables(unset: list[Unset], extensions: ExtensionsSettings) -> Iterator[Fault]:
    """Yield a fault for each unset variable in the extensions file, unless its server is disabled."""
    for place in unset:
        if place.path[0] != "mcpServers" or extensions.mcp_servers[str(place.path[1])].enabled:
            fix = f"set {place.variable} in the environment or in .env"
            yield Fault(f"extensions.{dotted(place.path)}", f"is empty: {place.variable} is not set", fix)
