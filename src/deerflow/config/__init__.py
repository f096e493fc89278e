"""Settings as values: read once, validated, handed out by section."""

from deerflow.config.models import ModelSettings
from deerflow.config.paths import Paths
from deerflow.config.rooms import DatabaseSettings, SubagentsSettings, TitleSettings, UploadSettings
from deerflow.config.sandbox import MountSettings, SandboxSettings
from deerflow.config.section import Section
from deerflow.config.settings import Settings

__all__ = [
    "DatabaseSettings",
    "ModelSettings",
    "MountSettings",
    "Paths",
    "SandboxSettings",
    "Section",
    "Settings",
    "SubagentsSettings",
    "TitleSettings",
    "UploadSettings",
]
