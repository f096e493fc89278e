"""Settings of chat models, model calls and token budgets."""

from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import OpenSection, Section


class PricingSettings(Section):
    """Prices of a model, from which the cost of runs is computed."""

    currency: str = Field("USD", description="Currency of the prices.")
    input_per_million: float | None = Field(None, ge=0, description="Price of one million input tokens.")
    output_per_million: float | None = Field(None, ge=0, description="Price of one million output tokens.")
    input_cache_hit_per_million: float | None = Field(
        None, ge=0, description="Price of one million input tokens read from the provider's cache."
    )


class ModelSettings(OpenSection):
    """One chat model."""

    name: str = Field(min_length=1, description="Name of the model in requests, agents and on the page.")
    display_name: str | None = Field(None, description="Name shown to people. Absent: `name`.")
    description: str | None = Field(None, description="Purpose of the model, shown to people.")
    use: str = Field(
        min_length=1,
        description="The model's class as `module:Class`, such as `langchain_openai:ChatOpenAI`, or the name "
        "of an installed plug-in: `openai` (any compatible server), `anthropic`, `google`, `offline`.",
    )
    model: str = Field(min_length=1, description="The provider's name for the model.")
    supports_thinking: bool = Field(False, description="The model can reason before it answers.")
    supports_reasoning_effort: bool = Field(False, description="The model accepts `reasoning_effort`.")
    supports_vision: bool = Field(False, description="The model accepts images.")
    when_thinking_enabled: dict[str, Any] | None = Field(
        None, description="Keys added to the model's when reasoning is on in a run."
    )
    when_thinking_disabled: dict[str, Any] | None = Field(
        None, description="Keys added to the model's when reasoning is off in a run."
    )
    thinking: dict[str, Any] | None = Field(
        None, description="Short form of `when_thinking_enabled: {thinking: ...}`."
    )
    use_responses_api: bool | None = Field(None, description="With OpenAI: use the Responses API.")
    output_version: str | None = Field(
        None, description="With OpenAI: version of the format of the answer's content."
    )
    context_window: int | None = Field(None, gt=0, description="Maximum size of a call in tokens.")
    stream_chunk_timeout: float = Field(
        240, gt=0, description="Seconds without a chunk after which a streaming call fails."
    )
    pricing: PricingSettings | None = Field(None, description="Prices of the model.")
    fallbacks: tuple[str, ...] = Field(
        (), description="Names of models to call instead when a call of this one fails."
    )
    transport: Literal["lean", "sdk"] = Field(
        "lean",
        description="HTTP client for OpenAI-compatible models: `lean` is the built-in one, which takes less "
        "processor time per token; `sdk` is OpenAI's.",
    )
    repair_tool_calls: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Convert tool calls that the model wrote as JSON into its text, as small models do, "
        "to tool calls if the tool exists and accepts the arguments. `auto` skips JSON without tags when the "
        "model has made a regular call in the conversation, or the question asks for JSON or an example.",
    )


class LlmCallSettings(Section):
    """Concurrency and retries of model calls."""

    max_concurrent_calls: int = Field(
        0, ge=0, description="Maximum number of agents' model calls at once in this process; 0: no limit."
    )
    retry_max_attempts: int = Field(
        3, ge=1, description="Maximum number of attempts of a call, the first included."
    )
    retry_base_delay_ms: int = Field(
        1000, ge=0, description="Milliseconds before the first retry; doubled with each one."
    )
    retry_cap_delay_ms: int = Field(
        8000, ge=0, description="Maximum number of milliseconds between two attempts."
    )
    burst_retry_base_delay_ms: int = Field(
        5000, ge=0, description="Milliseconds before the first retry after a rate limit error (429)."
    )
    retry_after_max_seconds: float = Field(
        60,
        ge=0,
        description="Maximum number of seconds to wait when a provider sends `Retry-After`; if it asks for "
        "more, the call fails at once.",
    )


class CircuitBreakerSettings(Section):
    """Pausing calls to a model that keeps failing, per model and API key."""

    failure_threshold: int = Field(
        5,
        ge=1,
        description="Number of consecutive failed calls, each with all its attempts, after which calls fail "
        "at once. Rate limit errors (429) do not count.",
    )
    recovery_timeout_sec: int = Field(
        60, ge=1, description="Seconds after which one call is attempted to test the model."
    )


class TokenUsageSettings(Section):
    """Recording of token usage."""

    enabled: bool = Field(True, description="Record the token usage of every model call.")


class TokenBudgetSettings(Section):
    """Limits on the tokens that may be spent."""

    enabled: bool = Field(False, description="Enforce the budget.")
    max_tokens: int = Field(200_000, ge=1000, description="Maximum number of tokens in total.")
    max_input_tokens: int | None = Field(None, ge=1, description="Maximum number of input tokens.")
    max_output_tokens: int | None = Field(None, ge=1, description="Maximum number of output tokens.")
    warn_threshold: float = Field(
        0.8, ge=0, le=1, description="Share of the budget at which the agent is told to finish."
    )
    hard_stop_threshold: float = Field(
        1.0, ge=0, le=1, description="Share of the budget at which the agent is stopped."
    )
