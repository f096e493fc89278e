"""Settings of an agent's titles, summarization, loop detection, middlewares and suggestions."""

from typing import Any, Literal

from pydantic import Field, field_validator

from deerflow.config.section import Section


class TitleSettings(Section):
    """How threads get their titles."""

    enabled: bool = Field(True, description="Give threads a title when their first run starts.")
    max_words: int = Field(6, ge=1, le=20, description="Words in a title.")
    max_chars: int = Field(60, ge=10, le=200, description="Characters in a title.")
    model_name: str | None = Field(None, description="Model that writes it; absent: cut from the question.")
    prompt_template: str | None = Field(
        None,
        description="What that model is asked, with `{user_msg}`, `{max_words}`, `{max_chars}`.",
    )


class ContextSize(Section):
    """An amount of conversation."""

    type: Literal["tokens", "messages", "fraction"] = Field(
        description="What is counted; `fraction` is of the model's context window."
    )
    value: float = Field(gt=0, description="How many.")


class SummarizationSettings(Section):
    """How long conversations are shortened."""

    enabled: bool = Field(True, description="Replace old messages by a summary when there are too many.")
    model_name: str | None = Field(None, description="Model that summarises; absent: the run's own.")
    trigger: tuple[ContextSize, ...] = Field(
        (ContextSize(type="tokens", value=32_000),),
        description="When: one amount or a list; any of them counts.",
    )
    keep: ContextSize = Field(ContextSize(type="messages", value=10), description="What stays as it was.")
    trim_tokens_to_summarize: int | None = Field(
        15_564, gt=0, description="Tokens of old messages that the summary is written from."
    )
    summary_prompt: str | None = Field(None, description="What the model is asked; absent: our own words.")
    skill_file_read_tool_names: tuple[str, ...] = Field(
        ("read_file", "read", "view", "cat"), description="Tools whose reads of skills outlive a summary."
    )

    @field_validator("trigger", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, trigger: Any) -> Any:
        return [trigger] if isinstance(trigger, dict | ContextSize) else trigger


class ToolFrequency(Section):
    """How often one tool may be called in a run."""

    warn: int = Field(ge=1, description="Calls after which the agent is warned.")
    hard_limit: int = Field(ge=1, description="Calls after which it is stopped.")


class LoopDetectionSettings(Section):
    """How an agent that repeats itself is stopped."""

    enabled: bool = Field(True, description="Look for repeated tool calls.")
    warn_threshold: int = Field(3, ge=1, description="Same calls after which the agent is warned.")
    hard_limit: int = Field(5, ge=1, description="Same calls after which it must answer.")
    window_size: int = Field(20, ge=1, description="Calls looked back upon.")
    max_tracked_threads: int = Field(100, ge=1, description="Threads remembered at once.")
    tool_freq_warn: int = Field(30, ge=1, description="Calls of one tool after which the agent is warned.")
    tool_freq_hard_limit: int = Field(50, ge=1, description="Calls of one tool after which it is stopped.")
    tool_freq_overrides: dict[str, ToolFrequency] = Field({}, description="The same, by tool's name.")


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
    """Which effects on model and tool calls are left out; others are switched in sections of their own."""

    off: tuple[Switchable, ...] = Field(
        (),
        description="Those to leave out. What protects (`input_sanitizing`, `result_labels`) or repairs "
        "(`dangling_calls`, `malformed_calls`, `tool_errors`) is missed when it is gone.",
    )


class SuggestionsSettings(Section):
    """Whether follow-up questions are suggested."""

    enabled: bool = Field(True, description="Suggest questions after an answer.")
    max_suggestions: int = Field(3, ge=1, le=5, description="How many.")


class InputPolishSettings(Section):
    """Whether the page can improve a question before it is sent."""

    enabled: bool = Field(True, description="Offer it.")
    max_chars: int = Field(4000, ge=1, description="Characters of the longest question.")
    model_name: str | None = Field(None, description="Model that does it; absent: the default.")


class SafetyDetector(Section):
    """A class that recognises a provider's refusal."""

    use: str = Field(description="The class as `module:Class`.")
    config: dict[str, Any] = Field({}, description="What it is made with.")


class SafetyFinishReasonSettings(Section):
    """What happens when a provider stops an answer for safety."""

    enabled: bool = Field(True, description="Say so in the answer and drop half-written tool calls.")
    detectors: tuple[SafetyDetector, ...] | None = Field(None, description="Absent: our own.")


class AgentsApiSettings(Section):
    """Whether custom agents can be changed over HTTP."""

    enabled: bool = Field(False, description="Allow it.")


class AgentStorageSettings(Section):
    """Where custom agents are kept."""

    backend: Literal["file", "db"] = Field("file", description="In folders, or in the database.")
