"""The root of all settings, as one frozen value."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from deerflow.config.agents import (
    AcpAgentSettings,
    AgentsApiSettings,
    InputPolishSettings,
    LoopDetectionSettings,
    MiddlewaresSettings,
    SafetyFinishReasonSettings,
    SubagentsSettings,
    SuggestionsSettings,
    SummarizationSettings,
    TeamsSettings,
    TitleSettings,
)
from deerflow.config.auth import AuthorizationSettings, AuthSettings
from deerflow.config.channels import ChannelConnectionsSettings, ChannelsSettings, DedupeStorageSettings
from deerflow.config.embeddings import EmbeddingSettings
from deerflow.config.extensions import ExtensionsSettings, McpSettings
from deerflow.config.memory import MemorySettings
from deerflow.config.models import (
    CircuitBreakerSettings,
    LlmCallSettings,
    ModelSettings,
    TokenBudgetSettings,
    TokenUsageSettings,
)
from deerflow.config.sandbox import SandboxSettings
from deerflow.config.section import Section, section
from deerflow.config.skills import SkillEvolutionSettings, SkillScanSettings, SkillsSettings
from deerflow.config.storage import (
    CheckpointerSettings,
    DatabaseSettings,
    RunOwnershipSettings,
    RunSettings,
    SchedulerSettings,
    database_from,
)
from deerflow.config.telemetry import (
    LoggingSettings,
    LogLevel,
    MetricsSettings,
    TelemetrySettings,
    TracingSettings,
)
from deerflow.config.tools import (
    GuardrailsSettings,
    ReadBeforeWriteSettings,
    ToolGroupSettings,
    ToolOutputSettings,
    ToolProgressSettings,
    ToolSearchSettings,
    ToolSettings,
    UploadSettings,
    WebSettings,
)

CONFIG_VERSION = 34
"""The newest supported layout version of DeerFlow 2's config.yaml."""


class Settings(Section):
    """The contents of `config.yaml`, with a default for every absent key."""

    config_version: int | None = Field(None, ge=0, description="Version of the layout of this file.")

    models: tuple[ModelSettings, ...] = Field((), description="Chat models; the first is the default.")
    llm_call: LlmCallSettings = section(LlmCallSettings)
    circuit_breaker: CircuitBreakerSettings = section(CircuitBreakerSettings)
    token_usage: TokenUsageSettings = section(TokenUsageSettings)
    token_budget: TokenBudgetSettings = section(TokenBudgetSettings)

    sandbox: SandboxSettings = section(SandboxSettings)
    tools: tuple[ToolSettings, ...] = Field((), description="Tools in addition to the built-in ones.")
    tool_groups: tuple[ToolGroupSettings, ...] = Field((), description="Groups of tools.")
    tool_search: ToolSearchSettings = section(ToolSearchSettings)
    tool_output: ToolOutputSettings = section(ToolOutputSettings)
    tool_progress: ToolProgressSettings = section(ToolProgressSettings)
    web: WebSettings = section(WebSettings)
    read_before_write: ReadBeforeWriteSettings = section(ReadBeforeWriteSettings)
    guardrails: GuardrailsSettings = section(GuardrailsSettings)
    uploads: UploadSettings = section(UploadSettings)

    subagents: SubagentsSettings = section(SubagentsSettings)
    teams: TeamsSettings = section(TeamsSettings)
    acp_agents: dict[str, AcpAgentSettings] = Field(
        {}, description="External agents (Agent Client Protocol) by name."
    )
    skills: SkillsSettings = section(SkillsSettings)
    skill_scan: SkillScanSettings = section(SkillScanSettings)
    skill_evolution: SkillEvolutionSettings = section(SkillEvolutionSettings)
    extensions: ExtensionsSettings = section(ExtensionsSettings)
    mcp: McpSettings = section(McpSettings)
    memory: MemorySettings = section(MemorySettings)
    embeddings: EmbeddingSettings = section(EmbeddingSettings)

    title: TitleSettings = section(TitleSettings)
    summarization: SummarizationSettings = section(SummarizationSettings)
    loop_detection: LoopDetectionSettings = section(LoopDetectionSettings)
    middlewares: MiddlewaresSettings = section(MiddlewaresSettings)
    safety_finish_reason: SafetyFinishReasonSettings = section(SafetyFinishReasonSettings)
    suggestions: SuggestionsSettings = section(SuggestionsSettings)
    input_polish: InputPolishSettings = section(InputPolishSettings)
    agents_api: AgentsApiSettings = section(AgentsApiSettings)

    database: DatabaseSettings = section(DatabaseSettings)
    checkpointer: CheckpointerSettings | None = Field(None, description="Older form of `database`.")
    runs: RunSettings = section(RunSettings)
    max_recursion_limit: int = Field(
        1000, ge=1, description="Maximum of `recursion_limit`, the number of graph steps, in a request."
    )
    compatibility: Literal["deerflow", "langgraph"] = Field(
        "deerflow",
        description="Defaults of requests where the HTTP APIs of DeerFlow 2 and of LangGraph's server "
        "differ, as for a run on a busy thread; `docs/reference/compatibility.md` lists them. "
        "Values in a request take precedence.",
    )
    run_ownership: RunOwnershipSettings = section(RunOwnershipSettings)
    dedupe_storage: DedupeStorageSettings = section(DedupeStorageSettings)

    auth: AuthSettings = section(AuthSettings)
    authorization: AuthorizationSettings = section(AuthorizationSettings)
    channels: ChannelsSettings = section(ChannelsSettings)
    channel_connections: ChannelConnectionsSettings = section(ChannelConnectionsSettings)
    scheduler: SchedulerSettings = section(SchedulerSettings)

    log_level: LogLevel = Field("info", description="Minimum level of log lines.")
    logging: LoggingSettings = section(LoggingSettings)
    metrics: MetricsSettings = section(MetricsSettings)
    telemetry: TelemetrySettings = section(TelemetrySettings)
    tracing: TracingSettings = section(TracingSettings)

    @model_validator(mode="before")
    @classmethod
    def _older_files_have_a_checkpointer(cls, data: Any) -> Any:
        """Use `checkpointer:` as `database:` if there is no `database:` section."""
        if (
            not isinstance(data, Mapping)
            or data.get("database")
            or not isinstance(data.get("checkpointer"), Mapping)
        ):
            return data
        return {**data, "database": database_from(data["checkpointer"])}

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        twice = [name for name, count in Counter(model.name for model in models).items() if count > 1]
        if twice:
            raise ValueError(f"several entries have the name {', '.join(twice)}; give each its own")
        return models

    @model_validator(mode="after")
    def _fallbacks_exist(self) -> Self:
        names = {model.name for model in self.models}
        wrong = [
            f"models[{index}].fallbacks names {fallback!r}"
            for index, model in enumerate(self.models)
            for fallback in model.fallbacks
            if fallback not in names
        ]
        if wrong:
            raise ValueError(f"{'; '.join(wrong)}; there are: {', '.join(sorted(names))}")
        return self
