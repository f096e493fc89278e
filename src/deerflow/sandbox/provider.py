"""Creates the sandbox provider that the settings select."""

import sys

from deerflow.config import SandboxSettings
from deerflow.config.aliases import canonical_use, resolve_use
from deerflow.errors import ConfigError
from deerflow.plugins import find_plugin
from deerflow.sandbox.base import SandboxProvider
from deerflow.sandbox.legacy import LegacySandboxProvider, is_legacy
from deerflow.sandbox.paths import SkillMounts, no_skills

GROUP = "deerflow.sandboxes"
"""Entry-point group of the providers, DeerFlow's own included."""


def tier_of(settings: SandboxSettings) -> str:
    """Return the selected provider's name or `module:Class`; without a setting, this system's default."""
    if settings.use is None:
        return "isolated" if sys.platform == "linux" else "local"
    return canonical_use(settings.use)


def create_sandbox_provider(settings: SandboxSettings, *, skills: SkillMounts = no_skills) -> SandboxProvider:
    """Return the provider that `sandbox.use` names: an installed plug-in or `module:Class`.

    Args:
        skills: Returns the folders of skills that a thread's sandbox may read.
    """
    name = tier_of(settings)
    make = resolve_use(name) if ":" in name else find_plugin(GROUP, name, key="sandbox.use").load()
    if not callable(make):
        raise ConfigError(f"sandbox.use: {name} is no class")
    try:
        if is_legacy(make):
            return LegacySandboxProvider(make, settings)
        provider = make(settings, skills=skills)
    except TypeError as error:
        raise ConfigError(f"sandbox.use: {name} cannot be built: {error}") from error
    if not isinstance(provider, SandboxProvider):
        raise ConfigError(f"sandbox.use: {name} is no SandboxProvider")
    return provider
