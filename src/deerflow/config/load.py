"""Reads everything that settings come from and returns it as one value."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from deerflow.config.check import check, dotted
from deerflow.config.effect import WAITING
from deerflow.config.environment import Places, find_places
from deerflow.config.extensions import ExtensionsSettings
from deerflow.config.extensions_file import read_extensions
from deerflow.config.parts import Problem, left_out
from deerflow.config.paths import Paths
from deerflow.config.settings import CONFIG_VERSION, Settings
from deerflow.config.variables import Unset, substitute
from deerflow.config.yaml_file import Document, KeyPath, read_yaml


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, where they came from, and what was wrong with them."""

    settings: Settings
    extensions: ExtensionsSettings
    """What `extensions_config.json` says, with the `extensions:` of `config.yaml` over it."""
    paths: Paths
    project_root: Path
    skills_root: Path
    """The folder with `public/` and `custom/`; it may not exist."""
    source_path: Path | None
    """The `config.yaml` in force; None: there is none, all settings are defaults."""
    extensions_path: Path
    """The extensions file, or where it would be made."""
    env: Mapping[str, str] = field(repr=False)
    """The environment with `.env` beneath it."""
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Parts that fell away because a variable they need is not set."""


def load_settings(
    path: Path | None = None, *, env: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> LoadedSettings:
    """Read the settings that hold in `cwd`; raise ConfigError with everything that is wrong."""
    places = find_places(path, env=env, cwd=(cwd or Path.cwd()).absolute())
    return load_from(places)


def load_from(places: Places) -> LoadedSettings:
    """Read the settings from files that were found before."""
    document = read_yaml(places.config) if places.config else Document(None, {})
    settings, problems = _settings_in(document, places.env)
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
        warnings=(
            *_warnings(settings),
            *_unused_extensions(extensions),
            *_empty_variables(unset, from_file),
        ),
        problems=tuple(problems),
    )


def _settings_in(document: Document, env: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    data, unset = substitute(document.data, env)
    kept = left_out(data, unset)

    def place_in_file(path: KeyPath) -> KeyPath:
        path = kept.place_in_file(path)
        return ("memory", *path[2:]) if _is_flat_memory(path, document.data) else path

    return check(Settings, kept.data, document, place_in_file=place_in_file), kept.problems


def _is_flat_memory(path: KeyPath, data: dict[str, Any]) -> bool:
    """Tell whether a key of `backend_config` stands right under `memory:` in this file."""
    return path[:2] == ("memory", "backend_config") and path[2:3] != () and path[2] in data["memory"]


def _warnings(settings: Settings) -> list[str]:
    warnings = []
    if settings.unused:
        keys = ", ".join(_with_guess(key) for key in settings.unused)
        warnings.append(f"these keys of config.yaml have no effect here: {keys}")
    if (settings.config_version or 0) > CONFIG_VERSION:
        warnings.append(
            f"config_version is {settings.config_version}; this DeerFlow knows layouts up to {CONFIG_VERSION}"
        )
    return warnings


def _unused_extensions(extensions: ExtensionsSettings) -> list[str]:
    """Name what is asked for in `extensions_config.json` and not built yet."""
    wishes = {
        "middlewares": extensions.middlewares,
        "mcpInterceptors": extensions.mcp_interceptors,
        **{
            f"mcpServers.{name}.task_toolsets": server.task_toolsets
            for name, server in extensions.mcp_servers.items()
        },
    }
    keys = [key for key, wish in wishes.items() if wish]
    return [f"these keys of the extensions have no effect here: {', '.join(keys)}"] if keys else []


def _with_guess(key: str) -> str:
    """Return an unknown top-level key with the name that was probably meant."""
    known = set(Settings.model_fields)
    guess = [] if key in known or "." in key else get_close_matches(key, known - WAITING, n=1)
    return f"{key} (did you mean {guess[0]}?)" if guess else key


def _empty_variables(unset: list[Unset], extensions: ExtensionsSettings) -> list[str]:
    """Name variables that the extensions file uses and nobody set, where the server is on."""
    return [
        f"{dotted(place.path)} is empty: set {place.variable} in the environment or in .env"
        for place in unset
        if place.path[0] != "mcpServers" or extensions.mcp_servers[str(place.path[1])].enabled
    ]
