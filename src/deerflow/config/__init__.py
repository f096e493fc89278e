"""Settings as frozen values: read from files, validated, passed on by section."""

from deerflow.config.agents import (
    AcpAgentSettings,
    ContextSize,
    CustomSubagent,
    LoopDetectionSettings,
    SafetyDetector,
    SubagentOverride,
    SubagentsSettings,
    SummarizationSettings,
    Switchable,
    TitleSettings,
    ToolFrequency,
)
from deerflow.config.aliases import canonical_use, resolve_use
from deerflow.config.environment import Paths
from deerflow.config.extensions import ExtensionsSettings, McpServerSettings
from deerflow.config.extensions_file import save_extensions
from deerflow.config.extras import install_hint, module_hint
from deerflow.config.load import LoadedSettings, Problem, load_settings
from deerflow.config.memory import MemoryBackendSettings, MemorySettings
from deerflow.config.models import (
    CircuitBreakerSettings,
    LlmCallSettings,
    ModelSettings,
    PricingSettings,
    TokenBudgetSettings,
)
from deerflow.config.sandbox import LimitSettings, MountSettings, NetworkSettings, SandboxSettings
from deerflow.config.section import OpenSection, Section
from deerflow.config.settings import Settings
from deerflow.config.skills import CatalogueSettings
from deerflow.config.source import SettingsSource
from deerflow.config.storage import DatabaseSettings, RunOwnershipSettings, RunSettings
from deerflow.config.tools import (
    GuardrailRule,
    GuardrailsSettings,
    ToolGroupSettings,
    ToolOutputSettings,
    ToolSettings,
    UploadSettings,
    WebSettings,
)

__all__ = [
    "AcpAgentSettings",
    "CatalogueSettings",
    "CircuitBreakerSettings",
    "ContextSize",
    "CustomSubagent",
    "DatabaseSettings",
    "ExtensionsSettings",
    "GuardrailRule",
    "GuardrailsSettings",
    "LimitSettings",
    "LlmCallSettings",
    "LoadedSettings",
    "LoopDetectionSettings",
    "McpServerSettings",
    "MemoryBackendSettings",
    "MemorySettings",
    "ModelSettings",
    "MountSettings",
    "NetworkSettings",
    "OpenSection",
    "Paths",
    "PricingSettings",
    "Problem",
    "RunOwnershipSettings",
    "RunSettings",
    "SafetyDetector",
    "SandboxSettings",
    "Section",
    "Settings",
    "SettingsSource",
    "SubagentOverride",
    "SubagentsSettings",
    "SummarizationSettings",
    "Switchable",
    "TitleSettings",
    "TokenBudgetSettings",
    "ToolFrequency",
    "ToolGroupSettings",
    "ToolOutputSettings",
    "ToolSettings",
    "UploadSettings",
    "WebSettings",
    "canonical_use",
    "install_hint",
    "load_settings",
    "module_hint",
    "resolve_use",
    "save_extensions",
]
