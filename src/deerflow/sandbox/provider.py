"""Creates the sandbox provider that the settings select."""

from importlib.metadata import entry_points
from pathlib import Path

from deerflow.config import SandboxSettings
from deerflow.config.aliases import resolve_use
from deerflow.errors import ConfigError
from deerflow.sandbox.base import SandboxProvider
from deerflow.sandbox.tiers import TIERS, tier_of

GROUP = "deerflow.sandboxes"


def create_sandbox_provider(settings: SandboxSettings, *, skills_root: Path | None = None) -> SandboxProvider:
    """Return the provider that `sandbox.use` names: a tier, an installed plug-in or `module:Class`."""
    name = tier_of(settings)
    make = resolve_use(_object_of(name))
    if not callable(make):
        raise ConfigError(f"sandbox.use: {name} is no class")
    try:
        provider = make(settings, skills_root=skills_root)
    except TypeError as error:
        raise ConfigError(f"sandbox.use: {name} cannot be built: {error}") from error
    if not isinstance(provider, SandboxProvider):
        raise ConfigError(f"sandbox.use: {name} is no SandboxProvider")
    return provider


def _object_of(name: str) -> str:
    if name in TIERS:
        return TIERS[name]
    if ":" in name:
        return name
    plugins = {point.name: point.value for point in entry_points(group=GROUP)}
    if name not in plugins:
        known = ", ".join(sorted({*TIERS, *plugins}))
        raise ConfigError(f"sandbox.use: '{name}' is unknown; use one of {known}, or module:Class")
    return plugins[name]
