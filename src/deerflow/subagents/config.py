"""What a sub-agent is, and how its work stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self

from langchain_core.messages import BaseMessage

from deerflow.config.tokens import TokenBudgetSettings
from deerflow.errors import ConflictError

INHERIT = "inherit"
TASK = "task"
NEVER_FOR_SUBAGENTS = frozenset({"ask_clarification", "present_files"})
"""Tools that belong to the lead agent: asking the user, handing over."""

StopReason = Literal["turn_capped", "token_capped", "loop_capped"]


@dataclass(frozen=True, slots=True)
class SubagentConfig:
    """A type of sub-agent that tasks may name."""

    name: str
    description: str
    """When to use it; the lead agent reads this."""
    system_prompt: str
    tools: tuple[str, ...] | None = None
    """The only tools it may have; None allows all."""
    disallowed_tools: tuple[str, ...] = ("task",)
    """Tools it may not have, whatever `tools` says."""
    skills: tuple[str, ...] | None = None
    """The only skills it hears of; None means all that are enabled."""
    model: str = INHERIT
    """A model's name, or `inherit` for the model of the run."""
    thinking: bool | None = None
    """Whether its model thinks before it answers; None: as the run does."""
    max_turns: int = 50
    """How often its model may answer."""
    timeout_seconds: float = 900
    token_budget: TokenBudgetSettings | None = None
    """What its models may read and write; None or a disabled budget: no limit."""
    needs_shell: bool = False
    """It is of no use where commands cannot run."""


class SubagentStatus(StrEnum):
    """Where a task stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def is_terminal(self) -> bool:
        return self not in (SubagentStatus.PENDING, SubagentStatus.RUNNING)

    def can_become(self, other: "SubagentStatus") -> bool:
        """Tell whether a task in this status may go to `other`."""
        match self:
            case SubagentStatus.PENDING:
                # A task that waits for a place can be cancelled or fail, but neither complete nor time out.
                return other in (SubagentStatus.RUNNING, SubagentStatus.CANCELLED, SubagentStatus.FAILED)
            case SubagentStatus.RUNNING:
                return other.is_terminal
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Question:
    """Something a sub-agent's tool asked and that only a person can answer."""

    value: Any
    """What was asked, in the tool's own words."""
    number: int
    """How many questions of this task were answered before."""


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """What is known of one task."""

    task_id: str
    trace_id: str
    run_id: str = ""
    description: str = ""
    subagent_type: str = ""
    model_name: str | None = None
    status: SubagentStatus = SubagentStatus.PENDING
    result: str | None = None
    """The answer; with `stop_reason`, `error` or a time-out it is what was found so far."""
    error: str | None = None
    stop_reason: StopReason | None = None
    """Which limit cut the work short, though its result stands."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    ai_messages: tuple[BaseMessage, ...] = ()
    """What its model said, each answer once."""
    token_usage: Mapping[str, int] = field(default_factory=dict)
    result_file: str | None = None
    """Where the whole text is when `result` is a summary of it."""
    parent_task_id: str | None = None
    """The task that started this one; None for tasks of the lead agent."""
    is_background: bool = False
    """The lead agent goes on while it works."""
    question: Question | None = None
    """It stopped to ask; the answer lets it go on."""
    answered: int = 0
    """How many of its questions people have answered."""

    def becoming(self, status: SubagentStatus, **changes: Any) -> Self:
        """Return the result in its next status; a step that cannot be is refused."""
        if not self.status.can_become(status):
            raise ConflictError(f"task {self.task_id} is {self.status} and cannot become {status}")
        return replace(self, status=status, **changes)
