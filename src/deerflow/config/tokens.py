"""Settings of token usage and token budgets."""

from pydantic import Field

from deerflow.config.section import Section


class TokenUsageSettings(Section):
    """Whether tokens are counted."""

    enabled: bool = Field(True, description="Record the tokens of every model call.")


class TokenBudgetSettings(Section):
    """How many tokens may be spent."""

    enabled: bool = Field(False, description="Keep to the budget.")
    max_tokens: int = Field(200_000, ge=1000, description="Tokens in all.")
    max_input_tokens: int | None = Field(None, ge=1, description="Tokens sent to models.")
    max_output_tokens: int | None = Field(None, ge=1, description="Tokens that models wrote.")
    warn_threshold: float = Field(0.8, ge=0, le=1, description="Share at which the agent is told to finish.")
    hard_stop_threshold: float = Field(1.0, ge=0, le=1, description="Share at which it is stopped.")
