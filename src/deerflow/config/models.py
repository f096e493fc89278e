"""Settings of the chat models."""

from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import Section


class ModelSettings(Section):
    """One entry of `models:`; keys not listed here go to the model's class as they are."""

    name: str = Field(description="The name that runs, agents and the page use.")
    display_name: str | None = Field(None, description="What people see; the name when absent.")
    description: str | None = Field(None, description="One sentence on what the model is good at.")
    use: str = Field(description="The model's class as `module:Class`.")
    model: str = Field(description="The provider's own name of the model.")
    supports_thinking: bool = Field(False, description="The model can think before it answers.")
    supports_reasoning_effort: bool = Field(False, description="The model takes `reasoning_effort`.")
    supports_vision: bool = Field(False, description="The model can look at images.")
    when_thinking_enabled: dict[str, Any] | None = Field(
        None, description="Keys merged into the model's when a run wants thinking."
    )
    when_thinking_disabled: dict[str, Any] | None = Field(
        None, description="Keys merged into the model's when a run wants no thinking."
    )
    context_window: int | None = Field(None, gt=0, description="How many tokens fit into one call.")
    fallbacks: tuple[str, ...] = Field((), description="Names of models to try when this one fails.")
    transport: Literal["lean", "sdk"] = Field(
        "lean", description="How OpenAI-compatible models are reached: our own streaming, or the SDK."
    )
