"""Settings of chat models and of model calls."""

from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import OpenSection, Section


class PricingSettings(Section):
    """What a model costs, so that runs can say what they spent."""

    currency: str = Field("USD", description="The currency of the prices.")
    input_per_million: float | None = Field(None, ge=0, description="Price of a million input tokens.")
    output_per_million: float | None = Field(None, ge=0, description="Price of a million output tokens.")
    input_cache_hit_per_million: float | None = Field(
        None, ge=0, description="Price of a million input tokens that the provider had cached."
    )


class ModelSettings(OpenSection):
    """One entry of `models:`; keys not listed here go to the model's class as they are."""

    name: str = Field(min_length=1, description="The name that runs, agents and the page use.")
    display_name: str | None = Field(None, description="What people see; the name when absent.")
    description: str | None = Field(None, description="One sentence on what the model is good at.")
    use: str = Field(
        min_length=1,
        description="The model's class as `module:Class`, such as `langchain_openai:ChatOpenAI`, or the name "
        "of an installed plug-in: `openai` (any compatible server), `anthropic`, `google`, `offline`.",
    )
    model: str = Field(min_length=1, description="The provider's own name of the model.")
    supports_thinking: bool = Field(False, description="The model can think before it answers.")
    supports_reasoning_effort: bool = Field(False, description="The model takes `reasoning_effort`.")
    supports_vision: bool = Field(False, description="The model can look at images.")
    when_thinking_enabled: dict[str, Any] | None = Field(
        None, description="Keys merged into the model's when a run wants thinking."
    )
    when_thinking_disabled: dict[str, Any] | None = Field(
        None, description="Keys merged into the model's when a run wants no thinking."
    )
    thinking: dict[str, Any] | None = Field(
        None, description="Short form: what `when_thinking_enabled` would set as `thinking`."
    )
    use_responses_api: bool | None = Field(None, description="With OpenAI: speak the Responses API.")
    output_version: str | None = Field(None, description="With OpenAI: the form of the answer's content.")
    context_window: int | None = Field(None, gt=0, description="How many tokens fit into one call.")
    stream_chunk_timeout: float = Field(
        240, gt=0, description="Seconds of silence after which a streaming call counts as dead."
    )
    pricing: PricingSettings | None = Field(None, description="What the model costs.")
    fallbacks: tuple[str, ...] = Field((), description="Names of models to try when this one fails.")
    transport: Literal["lean", "sdk"] = Field(
        "lean", description="How OpenAI-compatible models are reached: our own streaming, or the SDK."
    )
    repair_tool_calls: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Make real calls of tool calls that the model writes as JSON into its text, as small "
        "models do, where the name is a tool on offer and the arguments fit. `auto` leaves JSON without tags "
        "alone when the model has made a real call in the conversation, or the question asks for JSON or an "
        "example.",
    )


class LlmCallSettings(Section):
    """How calls to models are limited and repeated."""

    max_concurrent_calls: int = Field(
        0, ge=0, description="Calls of agents at once in this process; 0: any number."
    )
    retry_max_attempts: int = Field(3, ge=1, description="How often one call is tried in all.")
    retry_base_delay_ms: int = Field(1000, ge=0, description="Milliseconds before the first repeat.")
    retry_cap_delay_ms: int = Field(8000, ge=0, description="The longest wait between two tries.")
    burst_retry_base_delay_ms: int = Field(
        5000, ge=0, description="The first wait when the provider says that there were too many calls."
    )
    retry_after_max_seconds: float = Field(
        60,
        ge=0,
        description="The longest wait in seconds that a provider may ask for with `Retry-After`; a call that "
        "is to wait longer fails at once.",
    )


class CircuitBreakerSettings(Section):
    """When a model that keeps failing is left alone for a while; counted for each model and key."""

    failure_threshold: int = Field(
        5,
        ge=1,
        description="Failed calls in a row, each with all of its tries, that open the circuit. Calls that "
        "the provider refused for their number (429) do not count.",
    )
    recovery_timeout_sec: int = Field(
        60, ge=1, description="Seconds before one call is let through to see whether the model works again."
    )
