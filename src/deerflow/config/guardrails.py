"""Settings of guardrails on tool calls and of authorization."""

from importlib import import_module
from typing import Any, Literal

from pydantic import Field, field_validator

from deerflow.config.section import Section


class ProviderSettings(Section):
    """A class that decides, and what it is made with."""

    use: str = Field(description="The class as `module:Class`.")
    config: dict[str, Any] = Field({}, description="What it is made with.")


class GuardrailRule(Section):
    """One rule; the first that fits a tool call decides it."""

    tool: str = Field(min_length=1, description="The tool's name; `*` stands for any part of it.")
    pattern: str | None = Field(
        None,
        description="A regular expression on the call's arguments; absent: any. To `allow`, it must match "
        "all that the call says: its only argument where that is text (a `bash` command), else the arguments "
        "as JSON with sorted keys. To `deny` or `ask`, it only has to be found in that, or in any text among "
        "the arguments. The label `description` of our own tools does not count.",
    )
    action: Literal["allow", "deny", "ask"] = Field(description="What happens then; `ask` asks a person.")

    @field_validator("pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        regex = import_module("regex")  # takes 3 MB, and most settings have no patterns
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"must be a regular expression: {error}") from error
        return pattern


class GuardrailsSettings(Section):
    """What agents may do without asking."""

    enabled: bool = Field(False, description="Ask the provider below about every tool call.")
    fail_closed: bool = Field(True, description="Refuse a call when the provider fails.")
    passport: str | None = Field(None, description="A text handed to the provider: who the agent is.")
    provider: ProviderSettings | None = Field(None, description="A class that allows or denies tool calls.")
    rules: tuple[GuardrailRule, ...] = Field(
        (),
        description="Rules by tool and arguments; they hold whether or not `enabled` is set. What no rule "
        "fits is allowed, except that commands on the bare host and tools that act outside are asked about.",
    )
    ask_timeout_seconds: float = Field(
        86_400,
        gt=0,
        description="Seconds that a question waits for a person; then it is rejected and the run goes on.",
    )


class AuthorizationSettings(Section):
    """Who may use which tools, routes and models."""

    enabled: bool = Field(False, description="Ask the provider below.")
    fail_closed: bool = Field(True, description="Refuse when the provider fails.")
    default_role: str = Field("user", description="The role of a user who has none.")
    provider: ProviderSettings | None = Field(None, description="A class that knows the roles.")
