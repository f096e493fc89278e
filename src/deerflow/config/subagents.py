"""Settings of sub-agents and of external ACP agents."""

from typing import Literal

from pydantic import Field, field_validator

from deerflow.config.section import Section
from deerflow.config.tokens import TokenBudgetSettings


class SubagentOverride(Section):
    """What one sub-agent does differently from the rest."""

    timeout_seconds: float | None = Field(None, ge=1, description="Seconds that one task may take.")
    max_turns: int | None = Field(None, ge=1, description="Model calls of one task.")
    model: str | None = Field(None, min_length=1, description="The model's name, or `inherit`.")
    thinking: bool | None = Field(
        None, description="Whether it thinks before it answers; absent: `subagents.thinking`."
    )
    skills: tuple[str, ...] | None = Field(None, description="Skills it may use; absent: all.")
    token_budget: TokenBudgetSettings | None = Field(None, description="How many tokens it may spend.")


class CustomSubagent(Section):
    """A sub-agent of your own."""

    description: str = Field(description="When the lead agent should use it.")
    system_prompt: str = Field(description="What it is told.")
    tools: tuple[str, ...] | None = Field(None, description="Tools it may use; absent: all of the lead's.")
    disallowed_tools: tuple[str, ...] | None = Field(
        ("task", "ask_clarification", "present_files"), description="Tools it may not use; this list wins."
    )
    skills: tuple[str, ...] | None = Field(None, description="Skills it may use; absent: all.")
    token_budget: TokenBudgetSettings | None = Field(None, description="How many tokens it may spend.")
    model: str = Field("inherit", min_length=1, description="The model's name, or `inherit` for the lead's.")
    thinking: bool | None = Field(
        None, description="Whether it thinks before it answers; absent: `subagents.thinking`."
    )
    max_turns: int = Field(50, ge=1, description="Model calls of one task.")
    timeout_seconds: float = Field(900, ge=1, description="Seconds that one task may take.")


class SubagentsSettings(Section):
    """How work is delegated."""

    timeout_seconds: float = Field(900, ge=1, description="Seconds that one task may take.")
    max_turns: int | None = Field(None, ge=1, description="Model calls of one task, for every sub-agent.")
    max_running: int = Field(64, ge=1, description="Tasks running at once in this process.")
    max_running_per_user: int | None = Field(
        None, ge=1, description="Tasks of one user running at once; absent: only `max_running` counts."
    )
    max_running_per_run: int | None = Field(
        None, ge=1, description="Tasks of one run running at once; absent: only `max_running` counts."
    )
    concurrency_range: tuple[int, int] = Field(
        (2, 4), description="Least and most tasks that a run may have the lead start in one step."
    )
    overflow: Literal["drop", "queue"] = Field(
        "drop", description="Tasks beyond that number: `drop` leaves them out, `queue` runs them afterwards."
    )
    max_depth: int = Field(1, ge=1, description="1: sub-agents delegate no further; 2: once more; and so on.")
    max_total_per_run: int | None = Field(None, ge=1, description="Tasks of one run; absent: no limit.")
    thinking: bool | None = Field(
        None,
        description="Whether sub-agents think before they answer, if their model can; absent: as the run.",
    )
    token_budget: TokenBudgetSettings | None = Field(None, description="How many tokens one task may spend.")
    max_result_tokens: int = Field(
        4000, ge=200, description="Longer results are summed up for the lead; the whole text goes to a file."
    )
    agents: dict[str, SubagentOverride] = Field({}, description="Overrides by sub-agent's name.")
    custom_agents: dict[str, CustomSubagent] = Field({}, description="Sub-agents of your own, by name.")

    @field_validator("concurrency_range")
    @classmethod
    def _goes_up(cls, limits: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= limits[0] <= limits[1]:
            raise ValueError(
                f"{list(limits)} must be two numbers from 1 up, the smaller first, such as [2, 4]"
            )
        return limits


class AcpAgentSettings(Section):
    """An agent that runs as a program of its own and speaks ACP."""

    command: str = Field(min_length=1, description="The program.")
    args: tuple[str, ...] = Field((), description="Its arguments.")
    env: dict[str, str] = Field({}, description="The only variables it gets beside the usual ones.")
    description: str = Field(description="When the lead agent should use it.")
    model: str | None = Field(None, description="The model it should use, in its own words.")
    mcp_servers: tuple[str, ...] = Field(
        (), description="MCP servers that it may use too, by name; it gets their variables and headers."
    )
    auto_approve_permissions: bool = Field(False, description="Grant everything it asks for.")
    timeout_seconds: float = Field(1800, ge=1, description="Seconds that one call may take.")
