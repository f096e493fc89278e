"""The built-in sandbox tiers, and which one the settings select."""

import sys

from deerflow.config import SandboxSettings
from deerflow.config.aliases import canonical_use

TIERS = {
    "isolated": "deerflow.sandbox.isolated:IsolatedSandboxProvider",
    "landlock": "deerflow.sandbox.landlock:LandlockSandboxProvider",
    "local": "deerflow.sandbox.local:LocalSandboxProvider",
    "aio": "deerflow.sandbox.aio:AioSandboxProvider",
}
"""A module is imported only when its tier is selected."""


def tier_of(settings: SandboxSettings) -> str:
    """Return the selected tier's name or `module:Class`; without a setting, this system's default."""
    if settings.use is None:
        return "isolated" if sys.platform == "linux" else "local"
    return canonical_use(settings.use)
