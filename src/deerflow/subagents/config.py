"""Types of sub-agents, and the status and result of tasks."""

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
"""Tools of the lead agent only: asking the user and presenting files."""

StopReason = Literal["turn_capped", "token_capped", "loop_capped"]


@dataclass(frozen=True, slots=True)
class SubagentConfig:
    """A type of sub-agent, which a `task` call names."""

    name: str
    description: str
    """When to use it; part of the lead agent's prompt."""
    system_prompt: str
    tools: tuple[str, ...] | None = None
    """Allow-list of tools; None allows all."""
    disallowed_tools: tuple[str, ...] = ("task",)
    """Deny-list of tools; takes precedence over `tools`."""
    skills: tuple[str, ...] | None = None
    """Skills listed in its prompt; None: all enabled skills."""
    model: str = INHERIT
    """Name of a model, or `inherit` for the run's model."""
    thinking: bool | None = None
    """Whether thinking is enabled for its model; None: as for the run."""
    max_turns: int = 50
    """Maximum number of model answers."""
    timeout_seconds: float = 900
    token_budget: TokenBudgetSettings | None = None
    """Limits on input and output tokens; None or a disabled budget: no limit."""
    needs_shell: bool = False
    """Available only where the sandbox can execute commands."""


class SubagentStatus(StrEnum):
    """The status of a task."""

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
        """Return whether a task in this status may change to `other`."""
        match self:
            case SubagentStatus.PENDING:
                # A task that waits for a slot can be cancelled or fail, but neither complete nor time out.
                return other in (SubagentStatus.RUNNING, SubagentStatus.CANCELLED, SubagentStatus.FAILED)
            case SubagentStatus.RUNNING:
                return other.is_terminal
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Question:
    """An interrupt of a sub-agent's tool, which a person must answer."""

    value: Any
    """The value that the tool passed to `interrupt`."""
    number: int
    """Number of the task's questions answered before this one."""


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """The current status and result of one task."""

    task_id: str
    trace_id: str
    run_id: str = ""
    description: str = ""
    subagent_type: str = ""
    model_name: str | None = None
    status: SubagentStatus = SubagentStatus.PENDING
    result: str | None = None
    """The answer; with `stop_reason`, `error` or a time-out: the findings so far."""
    error: str | None = None
    stop_reason: StopReason | None = None
    """The limit that stopped the task; its result is still used."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    ai_messages: tuple[BaseMessage, ...] = ()
    """The model's answers, each once."""
    token_usage: Mapping[str, int] = field(default_factory=dict)
    result_file: str | None = None
    """Path of the full text when `result` is a summary of it."""
    parent_task_id: str | None = None
    """The task that started this one; None for tasks of the lead agent."""
    is_background: bool = False
    """The lead agent continues while the task runs."""
    question: Question | None = None
    """Set while the task is interrupted by a question; the answer resumes it."""
    answered: int = 0
    """Number of its questions that were answered."""

    def becoming(self, status: SubagentStatus, **changes: Any) -> Self:
        """Return the result in its next status; raise `ConflictError` for an invalid transition."""
        if not self.status.can_become(status):
            raise ConflictError(f"task {self.task_id} is {self.status} and cannot become {status}")
        return replace(self, status=status, **changes)
