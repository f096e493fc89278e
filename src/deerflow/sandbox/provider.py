"""Chooses the sandbox provider that the settings name."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from deerflow.config import SandboxSettings
from deerflow.errors import ConfigError
from deerflow.sandbox.base import SandboxProvider

GROUP = "deerflow.sandboxes"
TIERS = {
    "isolated": "deerflow.sandbox.isolated:IsolatedSandboxProvider",
    "landlock": "deerflow.sandbox.landlock:LandlockSandboxProvider",
    "local": "deerflow.sandbox.local:LocalSandboxProvider",
    "aio": "deerflow.sandbox.aio:AioSandboxProvider",
}
"""Our own tiers; each file is loaded only when it is chosen."""

ALIASES = {
    "deerflow.sandbox.local:LocalSandboxProvider": "local",
    "deerflow.community.aio_sandbox:AioSandboxProvider": "aio",
}
"""What older configuration files call them."""


def create_sandbox_provider(settings: SandboxSettings, *, skills_root: Path | None = None) -> SandboxProvider:
    """Return the provider that `sandbox.use` names: a tier, an installed plug-in or `module:Class`."""
    make = _load(tier_of(settings))
    try:
        provider = make(settings, skills_root=skills_root)
    except TypeError as error:
        raise ConfigError(f"sandbox.use: {settings.use} cannot be built: {error}") from error
    if not isinstance(provider, SandboxProvider):
        raise ConfigError(f"sandbox.use: {settings.use} is no SandboxProvider")
    return provider


def tier_of(settings: SandboxSettings) -> str:
    """Return the tier's name or the `module:Class` that is meant; absent means the best of this system."""
    if settings.use is None:
        return "isolated" if sys.platform == "linux" else "local"
    return ALIASES.get(settings.use, settings.use)


def _load(name: str) -> Callable[..., object]:
    use = TIERS.get(name, name)
    if ":" not in use:
        plugins = {point.name: point.value for point in entry_points(group=GROUP)}
        if use not in plugins:
            known = ", ".join(sorted({*TIERS, *plugins}))
            raise ConfigError(f"sandbox.use: '{name}' is unknown; use one of {known}, or module:Class")
        use = plugins[use]
    module, _, attribute = use.partition(":")
    try:
        found: Callable[..., object] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"sandbox.use: '{name}' cannot be loaded: {error}") from error
    return found
