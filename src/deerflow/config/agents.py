"""Settings of agents: titles, summarization, loop detection, sub-agents, teams and ACP agents."""

from typing import Any, Literal

from pydantic import Field, field_validator

from deerflow.config.models import TokenBudgetSettings
from deerflow.config.section import Section


class TitleSettings(Section):
    """Titles of threads."""

    enabled: bool = Field(True, description="Set a title when the first run of a thread starts.")
    max_words: int = Field(6, ge=1, le=20, description="Maximum number of words in a title.")
    max_chars: int = Field(60, ge=10, le=200, description="Maximum number of characters in a title.")
    model_name: str | None = Field(
        None, description="Model that writes the title. Absent: the title is the start of the first message."
    )
    prompt_template: str | None = Field(
        None,
        description="Prompt for that model, with the placeholders `{user_msg}`, `{max_words}` and "
        "`{max_chars}`.",
    )


class ContextSize(Section):
    """A size of the conversation."""

    type: Literal["tokens", "messages", "fraction"] = Field(
        description="Unit of `value`; `fraction` is a share of the model's context window."
    )
    value: float = Field(gt=0, description="The size, in the unit of `type`.")


class SummarizationSettings(Section):
    """Replacing old messages of a long conversation by a summary."""

    enabled: bool = Field(True, description="Summarize when the conversation reaches `trigger`.")
    model_name: str | None = Field(
        None, description="Model that writes the summary. Absent: the run's model."
    )
    trigger: tuple[ContextSize, ...] = Field(
        (ContextSize(type="tokens", value=32_000),),
        description="Size at which old messages are summarized: one size, or a list of which any suffices.",
    )
    keep: ContextSize = Field(
        ContextSize(type="messages", value=10), description="Size of the newest part, which stays unchanged."
    )
    trim_tokens_to_summarize: int | None = Field(
        15_564,
        gt=0,
        description="Maximum number of tokens of old messages that the summarizing model reads.",
    )
    summary_prompt: str | None = Field(
        None, description="Prompt for the summarizing model. Absent: the built-in prompt."
    )
    skill_file_read_tool_names: tuple[str, ...] = Field(
        ("read_file", "read", "view", "cat"),
        description="Tools whose results stay after a summary if they read a skill's file.",
    )

    @field_validator("trigger", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, trigger: Any) -> Any:
        return [trigger] if isinstance(trigger, dict | ContextSize) else trigger


class ToolFrequency(Section):
    """Limits on the calls of one tool in a run."""

    warn: int = Field(ge=1, description="Number of calls after which the agent is warned.")
    hard_limit: int = Field(ge=1, description="Number of calls after which further ones are refused.")


class LoopDetectionSettings(Section):
    """Stopping agents that repeat the same tool calls."""

    enabled: bool = Field(True, description="Detect repeated tool calls.")
    warn_threshold: int = Field(
        3, ge=1, description="Number of identical calls after which the agent is warned."
    )
    hard_limit: int = Field(
        5, ge=1, description="Number of identical calls after which the agent must answer without tools."
    )
    window_size: int = Field(
        20, ge=1, description="Number of most recent calls among which repetitions are counted."
    )
    tool_freq_warn: int = Field(
        30, ge=1, description="Number of calls of one tool in a run after which the agent is warned."
    )
    tool_freq_hard_limit: int = Field(
        50, ge=1, description="Number of calls of one tool in a run after which further ones are refused."
    )
    tool_freq_overrides: dict[str, ToolFrequency] = Field(
        {}, description="Limits for single tools instead of `tool_freq_*`, by the tool's name."
    )


Switchable = Literal[
    "clarification",
    "cut_off",
    "dangling_calls",
    "empty_answer",
    "input_sanitizing",
    "malformed_calls",
    "model_errors",
    "reminder",
    "result_labels",
    "todo",
    "tool_errors",
    "uploads",
    "view_image",
]
"""The middlewares that have no section in the settings."""


class MiddlewaresSettings(Section):
    """Built-in middlewares to leave out; those with a section of their own are disabled there."""

    off: tuple[Switchable, ...] = Field(
        (),
        description="Names of middlewares to leave out. Without `input_sanitizing` and `result_labels` "
        "prompt injection is easier; without `dangling_calls`, `malformed_calls` and "
        "`tool_errors` such errors end the run.",
    )


class SuggestionsSettings(Section):
    """Suggested follow-up questions."""

    enabled: bool = Field(True, description="Suggest follow-up questions after an answer.")
    max_suggestions: int = Field(3, ge=1, le=5, description="Maximum number of suggestions.")


class InputPolishSettings(Section):
    """Rewriting a message by a model before it is sent."""

    enabled: bool = Field(True, description="Offer it on the page and over HTTP.")
    max_chars: int = Field(4000, ge=1, description="Maximum length of such a message in characters.")
    model_name: str | None = Field(
        None, description="Model that rewrites the message. Absent: the default model."
    )


class SafetyDetector(Section):
    """A class that detects a provider's refusal."""

    use: str = Field(description="The class as `module:Class`.")
    config: dict[str, Any] = Field({}, description="Keyword arguments of the class.")


class SafetyFinishReasonSettings(Section):
    """Answers that a provider stopped for safety reasons."""

    enabled: bool = Field(True, description="Say so in the answer, and drop its incomplete tool calls.")
    detectors: tuple[SafetyDetector, ...] | None = Field(
        None, description="Classes that detect such answers. Absent: the built-in ones."
    )


class AgentsApiSettings(Section):
    """Custom agents over HTTP."""

    enabled: bool = Field(False, description="Allow clients to create, change and delete custom agents.")


class SubagentOverride(Section):
    """Changed settings of one sub-agent; what is absent stays as it is."""

    timeout_seconds: float | None = Field(None, ge=1, description="Maximum duration of a task in seconds.")
    max_turns: int | None = Field(None, ge=1, description="Maximum number of model calls of a task.")
    model: str | None = Field(
        None, min_length=1, description="The model's name, or `inherit` for the lead agent's."
    )
    thinking: bool | None = Field(
        None, description="Whether the model reasons before it answers. Absent: `subagents.thinking`."
    )
    skills: tuple[str, ...] | None = Field(None, description="Skills it may use. Absent: all.")
    token_budget: TokenBudgetSettings | None = Field(None, description="Token budget of a task.")


class CustomSubagent(Section):
    """A custom sub-agent."""

    description: str = Field(description="Purpose of the sub-agent; the lead agent chooses by it.")
    system_prompt: str = Field(description="System prompt of the sub-agent.")
    tools: tuple[str, ...] | None = Field(
        None, description="Names of its tools. Absent: all tools of the lead agent."
    )
    disallowed_tools: tuple[str, ...] | None = Field(
        ("task", "ask_clarification", "present_files"),
        description="Tools it never gets; takes precedence over `tools`.",
    )
    skills: tuple[str, ...] | None = Field(None, description="Skills it may use. Absent: all.")
    token_budget: TokenBudgetSettings | None = Field(None, description="Token budget of a task.")
    model: str = Field(
        "inherit", min_length=1, description="The model's name, or `inherit` for the lead agent's."
    )
    thinking: bool | None = Field(
        None, description="Whether the model reasons before it answers. Absent: `subagents.thinking`."
    )
    max_turns: int = Field(50, ge=1, description="Maximum number of model calls of a task.")
    timeout_seconds: float = Field(900, ge=1, description="Maximum duration of a task in seconds.")


class SubagentsSettings(Section):
    """Delegation of tasks to sub-agents."""

    enabled: bool = Field(
        False,
        description="Whether the lead agent may delegate when the request of a run does not say "
        "(`subagent_enabled`). Off by default: delegation multiplies the tokens that a run spends.",
    )
    timeout_seconds: float = Field(900, ge=1, description="Maximum duration of a task in seconds.")
    max_turns: int | None = Field(
        None,
        ge=1,
        description="Maximum number of model calls of a task, for all sub-agents. Absent: each one's own.",
    )
    max_running: int = Field(
        64, ge=1, description="Maximum number of tasks running at once in this process; further ones wait."
    )
    max_running_per_user: int | None = Field(
        None, ge=1, description="Maximum number of tasks of one user running at once. Absent: `max_running`."
    )
    max_running_per_run: int | None = Field(
        None, ge=1, description="Maximum number of tasks of one run running at once. Absent: `max_running`."
    )
    concurrency_range: tuple[int, int] = Field(
        (2, 4),
        description="Minimum and maximum of `max_concurrent_subagents` in a request: the number of tasks "
        "that the lead agent may start in one step.",
    )
    overflow: Literal["drop", "queue"] = Field(
        "drop",
        description="What happens to tasks of a step beyond that number: `drop` refuses them, `queue` runs "
        "them afterwards.",
    )
    max_depth: int = Field(
        1,
        ge=1,
        description="Levels of delegation. 1: sub-agents do not delegate; 2: theirs do not; and so on.",
    )
    max_total_per_run: int | None = Field(
        None, ge=1, description="Maximum number of tasks of a run. Absent: no limit."
    )
    thinking: bool | None = Field(
        None,
        description="Whether models of sub-agents reason before they answer, if they can. Absent: as in the "
        "run.",
    )
    token_budget: TokenBudgetSettings | None = Field(None, description="Token budget of a task.")
    max_result_tokens: int = Field(
        4000,
        ge=200,
        description="Maximum size in tokens of a result for the lead agent. A longer one is summarized, and"
        " its full text is written to a file.",
    )
    agents: dict[str, SubagentOverride] = Field(
        {}, description="Changed settings of single sub-agents, by name."
    )
    custom_agents: dict[str, CustomSubagent] = Field({}, description="Custom sub-agents by name.")

    @field_validator("concurrency_range")
    @classmethod
    def _is_ascending(cls, limits: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= limits[0] <= limits[1]:
            raise ValueError(
                f"{list(limits)} must be two numbers from 1 up, the smaller first, such as [2, 4]"
            )
        return limits


TeamStage = Literal["work", "check", "approve"]


class TeamRoleSettings(CustomSubagent):
    """A custom role; with the name of a built-in role it replaces that role."""

    topics: tuple[str, ...] = Field(
        (), description="Words in a goal that select this role when no model writes the plan."
    )
    stage: Literal["work", "check"] = Field(
        "work", description="When no model writes the plan: `check` roles run after all `work` roles."
    )


class TeamsSettings(Section):
    """Teams: several roles that work on one goal by a plan."""

    enabled: bool = Field(True, description="Allow the lead agent to start a team where it may delegate.")
    max_steps: int = Field(12, ge=1, le=50, description="Maximum number of steps of a plan.")
    planning_seconds: float = Field(
        180, ge=1, description="Maximum duration in seconds of writing the plan, and of joining the results."
    )
    roles: dict[str, TeamRoleSettings] = Field({}, description="Custom roles by name.")
    coordinator: str | None = Field(
        None,
        description="Function that writes the plan instead of a model, as `module:name`. It gets the request "
        "and the roles, and returns the steps. If it fails, the plan is written as without it.",
    )


class AcpAgentSettings(Section):
    """An external agent: a program that speaks the Agent Client Protocol."""

    command: str = Field(min_length=1, description="The program.")
    args: tuple[str, ...] = Field((), description="Arguments of the program.")
    env: dict[str, str] = Field(
        {}, description="Environment variables of the program, in addition to `PATH`, `HOME` and the like."
    )
    description: str = Field(description="Purpose of the agent; the lead agent chooses by it.")
    model: str | None = Field(None, description="Model the agent shall use, by the agent's own name for it.")
    mcp_servers: tuple[str, ...] = Field(
        (),
        description="Names of MCP servers that the agent may use; it receives their variables and headers.",
    )
    auto_approve_permissions: bool = Field(
        False, description="Grant every permission the agent requests, without asking a person."
    )
    timeout_seconds: float = Field(1800, ge=1, description="Maximum duration of a call in seconds.")
