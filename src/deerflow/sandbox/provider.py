"""Creates the sandbox provider that the settings select."""

import sys
from pathlib import Path

from deerflow.config import SandboxSettings
from deerflow.config.aliases import canonical_use, resolve_use
from deerflow.config.sandbox import MountSettings
from deerflow.errors import ConfigError
from deerflow.plugins import find_plugin
from deerflow.sandbox.base import SandboxProvider
from deerflow.sandbox.legacy import LegacySandboxProvider, is_legacy
from deerflow.sandbox.paths import SKILLS, checked_mount

GROUP = "deerflow.sandboxes"
"""Entry-point group of the providers, DeerFlow's own included."""


def tier_of(settings: SandboxSettings) -> str:
    """Return the selected provider's name or `module:Class`; without a setting, this system's default."""
    if settings.use is None:
        return "isolated" if sys.platform == "linux" else "local"
    return canonical_use(settings.use)


def create_sandbox_provider(
    settings: SandboxSettings, *, skills_root: Path | None = None, skills_path: str = SKILLS
) -> SandboxProvider:
    """Return the provider that `sandbox.use` names: an installed plug-in or `module:Class`.

    Args:
        skills_root: The host folder of skills, which sandboxes may read.
        skills_path: Its path in sandboxes; another path than the usual one is a mount like the operator's.
    """
    if skills_path.rstrip("/") != SKILLS and skills_root is not None and skills_root.is_dir():
        mount = MountSettings(
            host_path=str(skills_root.absolute()), container_path=skills_path, read_only=True
        )
        checked_mount(mount, key=f"skills.container_path: {skills_path}")
        settings = settings.model_copy(update={"mounts": (*settings.mounts, mount)})
        skills_root = None
    name = tier_of(settings)
    make = resolve_use(name) if ":" in name else find_plugin(GROUP, name, key="sandbox.use").load()
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
