"""Creates the sandbox provider that the settings select."""

import sys
from pathlib import Path

from deerflow.config import SandboxSettings
from deerflow.config.aliases import canonical_use, resolve_use
from deerflow.errors import ConfigError
from deerflow.plugins import find_plugins
from deerflow.sandbox.base import SandboxProvider
from deerflow.sandbox.legacy import LegacySandboxProvider, is_legacy

GROUP = "deerflow.sandboxes"
"""Entry-point group of the providers, DeerFlow's own included."""


def tier_of(settings: SandboxSettings) -> str:
    """Return the selected provider's name or `module:Class`; without a setting, this system's default."""
    if settings.use is None:
        return "isolated" if sys.platform == "linux" else "local"
    return canonical_use(settings.use)


def create_sandbox_provider(settings: SandboxSettings, *, skills_root: Path | None = None) -> SandboxProvider:
    """Return the provider that `sandbox.use` names: an installed plug-in or `module:Class`."""
    name = tier_of(settings)
    make = resolve_use(name) if ":" in name else _load(name)
    if not callable(make):
        raise ConfigError(f"sandbox.use: {name} is no class")
    try:
        if is_legacy(make):
            return LegacySandboxProvider(make, settings)
        provider = make(settings, skills_root=skills_root)
    except TypeError as error:
        raise ConfigError(f"sandbox.use: {name} cannot be built: {error}") from error
    if not isinstance(provider, SandboxProvider):
        raise ConfigError(f"sandbox.use: {name} is no SandboxProvider")
    return provider


def _load(name: str) -> object:
    plugins = find_plugins(GROUP)
    if name in plugins:
        return plugins[name].load()
    if not plugins:
        raise ConfigError(
            "no sandbox is installed: DeerFlow's package information is missing or older than its source; "
            "install it again (in a source folder: `make install`)"
        )
    known = ", ".join(sorted(plugins))
    raise ConfigError(f"sandbox.use: '{name}' is unknown; use one of {known}, or module:Class")
