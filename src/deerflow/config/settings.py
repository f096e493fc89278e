"""The root of all settings, as one frozen value."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from deerflow.config.agents import (
    AgentsApiSettings,
    AgentStorageSettings,
    InputPolishSettings,
    LoopDetectionSettings,
    MiddlewaresSettings,
    SafetyFinishReasonSettings,
    SuggestionsSettings,
    SummarizationSettings,
    TitleSettings,
)
from deerflow.config.auth import AuthSettings
from deerflow.config.channels import ChannelConnectionsSettings, ChannelsSettings
from deerflow.config.extensions import ExtensionsSettings
from deerflow.config.guardrails import AuthorizationSettings, GuardrailsSettings
from deerflow.config.logs import LoggingSettings, LogLevel
from deerflow.config.mcp import McpSettings
from deerflow.config.memory import MemorySettings
from deerflow.config.models import CircuitBreakerSettings, LlmCallSettings, ModelSettings
from deerflow.config.sandbox import SandboxSettings
from deerflow.config.scheduler import McpTasksSettings, PluginSettings, SchedulerSettings
from deerflow.config.section import Section
from deerflow.config.skills import SkillEvolutionSettings, SkillScanSettings, SkillsSettings
from deerflow.config.storage import (
    CheckpointerSettings,
    DatabaseSettings,
    DedupeStorageSettings,
    RunEventsSettings,
    RunOwnershipSettings,
    RunSettings,
    StreamBridgeSettings,
    database_from,
)
from deerflow.config.subagents import AcpAgentSettings, SubagentsSettings
from deerflow.config.teams import TeamsSettings
from deerflow.config.telemetry import MetricsSettings, TelemetrySettings, TracingSettings
from deerflow.config.tokens import TokenBudgetSettings, TokenUsageSettings
from deerflow.config.tools import (
    ReadBeforeWriteSettings,
    ToolGroupSettings,
    ToolOutputSettings,
    ToolProgressSettings,
    ToolSearchSettings,
    ToolSettings,
)
from deerflow.config.uploads import UploadSettings

CONFIG_VERSION = 34
"""The newest supported layout version of DeerFlow 2's config.yaml."""


class Settings(Section):
    """What `config.yaml` says, with a default for everything it does not say."""

    config_version: int | None = Field(None, ge=0, description="The layout this file was written for.")

    models: tuple[ModelSettings, ...] = Field((), description="Chat models; the first is the default.")
    llm_call: LlmCallSettings = Field(
        LlmCallSettings.model_construct(), description="How calls are limited and repeated."
    )
    circuit_breaker: CircuitBreakerSettings = Field(
        CircuitBreakerSettings.model_construct(), description="When a failing model is left alone."
    )
    token_usage: TokenUsageSettings = Field(
        TokenUsageSettings.model_construct(), description="Whether tokens are counted."
    )
    token_budget: TokenBudgetSettings = Field(
        TokenBudgetSettings.model_construct(), description="How many may be spent."
    )

    sandbox: SandboxSettings = Field(SandboxSettings.model_construct(), description="Where commands run.")
    tools: tuple[ToolSettings, ...] = Field((), description="Tools beside the built-in ones.")
    tool_groups: tuple[ToolGroupSettings, ...] = Field((), description="Groups that tools belong to.")
    tool_search: ToolSearchSettings = Field(
        ToolSearchSettings.model_construct(), description="Tools found by searching."
    )
    tool_output: ToolOutputSettings = Field(
        ToolOutputSettings.model_construct(), description="Long tool results."
    )
    tool_progress: ToolProgressSettings = Field(
        ToolProgressSettings.model_construct(), description="Work without headway."
    )
    read_before_write: ReadBeforeWriteSettings = Field(
        ReadBeforeWriteSettings.model_construct(), description="Files are read before they are overwritten."
    )
    guardrails: GuardrailsSettings = Field(
        GuardrailsSettings.model_construct(), description="What agents may do unasked."
    )
    uploads: UploadSettings = Field(UploadSettings.model_construct(), description="How much may be uploaded.")

    subagents: SubagentsSettings = Field(
        SubagentsSettings.model_construct(), description="How work is delegated."
    )
    teams: TeamsSettings = Field(
        TeamsSettings.model_construct(), description="How several roles work on one goal."
    )
    acp_agents: dict[str, AcpAgentSettings] = Field({}, description="Agents of other programs, by name.")
    skills: SkillsSettings = Field(SkillsSettings.model_construct(), description="Where skills are found.")
    skill_scan: SkillScanSettings = Field(
        SkillScanSettings.model_construct(), description="Checking installed skills."
    )
    skill_evolution: SkillEvolutionSettings = Field(
        SkillEvolutionSettings.model_construct(), description="Skills that agents write."
    )
    extensions: ExtensionsSettings = Field(
        ExtensionsSettings.model_construct(),
        description="What is said here wins over `extensions_config.json`, key by key.",
    )
    mcp: McpSettings = Field(
        McpSettings.model_construct(), description="How MCP servers of `extensions_config.json` are used."
    )
    memory: MemorySettings = Field(
        MemorySettings.model_construct(), description="What is remembered between threads."
    )

    title: TitleSettings = Field(TitleSettings.model_construct(), description="How threads get titles.")
    summarization: SummarizationSettings = Field(
        SummarizationSettings.model_construct(), description="How long conversations are shortened."
    )
    loop_detection: LoopDetectionSettings = Field(
        LoopDetectionSettings.model_construct(), description="How an agent that repeats itself is stopped."
    )
    middlewares: MiddlewaresSettings = Field(
        MiddlewaresSettings.model_construct(),
        description="Effects on an agent that are left out.",
    )
    safety_finish_reason: SafetyFinishReasonSettings = Field(
        SafetyFinishReasonSettings.model_construct(), description="Answers that a provider stopped."
    )
    suggestions: SuggestionsSettings = Field(
        SuggestionsSettings.model_construct(), description="Follow-up questions."
    )
    input_polish: InputPolishSettings = Field(
        InputPolishSettings.model_construct(), description="Improving a question."
    )
    agents_api: AgentsApiSettings = Field(
        AgentsApiSettings.model_construct(), description="Custom agents over HTTP."
    )
    agent_storage: AgentStorageSettings = Field(
        AgentStorageSettings.model_construct(), description="Where custom agents are kept."
    )

    database: DatabaseSettings = Field(
        DatabaseSettings.model_construct(), description="Where everything is kept."
    )
    checkpointer: CheckpointerSettings | None = Field(None, description="The older form of `database`.")
    runs: RunSettings = Field(RunSettings.model_construct(), description="What one run may take.")
    max_recursion_limit: int = Field(1000, ge=1, description="The most graph steps a client may ask for.")
    compatibility: Literal["deerflow", "langgraph"] = Field(
        "deerflow",
        description="Whose defaults requests have where the HTTP contracts of DeerFlow 2 and of LangGraph's "
        "server differ, as for a run on a busy thread; `docs/reference/compatibility.md` lists them. What a "
        "request says itself always counts.",
    )
    run_events: RunEventsSettings = Field(
        RunEventsSettings.model_construct(), description="The log of a run."
    )
    run_ownership: RunOwnershipSettings = Field(
        RunOwnershipSettings.model_construct(), description="Who works on a run."
    )
    stream_bridge: StreamBridgeSettings = Field(
        StreamBridgeSettings.model_construct(), description="Events to readers."
    )
    dedupe_storage: DedupeStorageSettings = Field(
        DedupeStorageSettings.model_construct(), description="Messages seen."
    )

    auth: AuthSettings = Field(AuthSettings.model_construct(), description="How people sign in.")
    authorization: AuthorizationSettings = Field(
        AuthorizationSettings.model_construct(), description="Who may do what."
    )
    channels: ChannelsSettings = Field(ChannelsSettings.model_construct(), description="Chat services.")
    channel_connections: ChannelConnectionsSettings = Field(
        ChannelConnectionsSettings.model_construct(), description="Users' own accounts of them."
    )
    scheduler: SchedulerSettings = Field(
        SchedulerSettings.model_construct(), description="Runs that start on time."
    )
    mcp_tasks: McpTasksSettings = Field(
        McpTasksSettings.model_construct(), description="Long tasks of MCP servers."
    )
    plugins: tuple[PluginSettings, ...] = Field((), description="Plug-ins.")

    log_level: LogLevel = Field("info", description="How much is logged.")
    logging: LoggingSettings = Field(LoggingSettings.model_construct(), description="How log lines look.")
    metrics: MetricsSettings = Field(MetricsSettings.model_construct(), description="Numbers for Prometheus.")
    telemetry: TelemetrySettings = Field(
        TelemetrySettings.model_construct(), description="Spans for OpenTelemetry."
    )
    tracing: TracingSettings = Field(
        TracingSettings.model_construct(), description="Services that show what agents did."
    )

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
