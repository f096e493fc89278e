"""The names of our own sandboxes and which one the settings mean."""

import sys

from deerflow.config import SandboxSettings
from deerflow.config.aliases import canonical_use

TIERS = {
    "isolated": "deerflow.sandbox.isolated:IsolatedSandboxProvider",
    "landlock": "deerflow.sandbox.landlock:LandlockSandboxProvider",
    "local": "deerflow.sandbox.local:LocalSandboxProvider",
    "aio": "deerflow.sandbox.aio:AioSandboxProvider",
}
"""Each file is loaded only when its tier is chosen."""


def tier_of(settings: SandboxSettings) -> str:
    """Return the tier's name or the `module:Class` that is meant; absent means the best of this system."""
    if settings.use is None:
        return "isolated" if sys.platform == "linux" else "local"
    return canonical_use(settings.use)
