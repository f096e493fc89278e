"""Settings as frozen values: read from files, validated, passed on by section."""

from deerflow.config.agents import (
    ContextSize,
    LoopDetectionSettings,
    SafetyDetector,
    SummarizationSettings,
    Switchable,
    TitleSettings,
    ToolFrequency,
)
from deerflow.config.aliases import canonical_use, resolve_use
from deerflow.config.extensions import ExtensionsSettings, McpServerSettings
from deerflow.config.extensions_file import save_extensions
from deerflow.config.extras import install_hint, module_hint
from deerflow.config.guardrails import GuardrailRule, GuardrailsSettings
from deerflow.config.load import LoadedSettings, load_settings
from deerflow.config.memory import MemoryBackendSettings, MemorySettings
from deerflow.config.models import CircuitBreakerSettings, LlmCallSettings, ModelSettings, PricingSettings
from deerflow.config.parts import Problem
from deerflow.config.paths import Paths
from deerflow.config.sandbox import LimitSettings, MountSettings, NetworkSettings, SandboxSettings
from deerflow.config.section import OpenSection, Section
from deerflow.config.settings import Settings
from deerflow.config.source import SettingsSource
from deerflow.config.storage import DatabaseSettings, RunOwnershipSettings, RunSettings, StreamBridgeSettings
from deerflow.config.subagents import AcpAgentSettings, CustomSubagent, SubagentOverride, SubagentsSettings
from deerflow.config.tokens import TokenBudgetSettings
from deerflow.config.tools import ToolGroupSettings, ToolOutputSettings, ToolSettings
from deerflow.config.uploads import UploadSettings

__all__ = [
    "AcpAgentSettings",
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
    "StreamBridgeSettings",
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
    "canonical_use",
    "install_hint",
    "load_settings",
    "module_hint",
    "resolve_use",
    "save_extensions",
]
