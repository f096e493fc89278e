"""Types of sub-agents, the specification of one task, its status and result, and the limits on tasks."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool

from deerflow.agents import Agent
from deerflow.agents.first_answer import FirstAnswer
from deerflow.config import Settings, SubagentsSettings
from deerflow.config.models import TokenBudgetSettings
from deerflow.context import RunContext
from deerflow.domain import RunOptions
from deerflow.errors import ConflictError
from deerflow.subagents.slots import SlotOwner

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
    extra_tools: tuple[BaseTool, ...] = field(default=(), hash=False)
    """Tools of its own, which no other agent has."""
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
class TaskQuestion:
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
    question: TaskQuestion | None = None
    """Set while the task is interrupted by a question; the answer resumes it."""
    answered: int = 0
    """Number of its questions that were answered."""

    def becoming(self, status: SubagentStatus, **changes: Any) -> Self:
        """Return the result in its next status; raise `ConflictError` for an invalid transition."""
        if not self.status.can_become(status):
            raise ConflictError(f"task {self.task_id} is {self.status} and cannot become {status}")
        return replace(self, status=status, **changes)


@dataclass(frozen=True, eq=False, slots=True)
class TaskAgent:
    """The agent of a sub-agent type; any number of tasks share one."""

    graph: Agent
    first_answer: FirstAnswer | None = None
    """Gets the first answer without the graph; None where the graph is needed from the start."""


@dataclass(frozen=True, slots=True)
class ResumeAnswer:
    """A person's answer to a task's question."""

    value: object


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task, with the agent that executes it."""

    task_id: str
    """The id of the `task` call."""
    thread_id: str
    """The task's checkpoint thread."""
    config: SubagentConfig
    description: str
    prompt: str
    model_name: str | None
    agent: TaskAgent
    context: RunContext
    """The context of the delegating agent."""
    model: Callable[[], BaseChatModel] | None = None
    """Returns a model for summaries; without one the middle of a long result is cut."""
    close_models: Callable[[], Awaitable[None]] | None = None
    """Closes the model connections when the task ran on an event loop of its own."""
    is_background: bool = False
    resume: ResumeAnswer | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Run id and task id: some models reuse their call ids in every conversation."""
        return self.context.run_id, self.task_id

    @property
    def name(self) -> str:
        """A name that is unique in the conversation, even where models reuse call ids."""
        return self.thread_id.rpartition("/")[2]

    @property
    def slot_owner(self) -> SlotOwner:
        """The run and user that the task's slot counts for, with their limits."""
        settings = self.context.settings.subagents
        return SlotOwner(
            run=self.context.run_id,
            user=self.context.user_id,
            per_run=_running_limit(self.context.options, settings),
            per_user=settings.max_running_per_user,
        )


def subagent_limit(options: RunOptions, settings: Settings) -> int:
    """Return how many tasks one reply may start; 0 when sub-agents are off."""
    return _reply_limit(options, settings.subagents) if options.subagent_enabled else 0


def total_limit(options: RunOptions, settings: SubagentsSettings) -> int | None:
    """Return how many tasks one run may start; a client may lower the limit, not raise it."""
    limits = (settings.max_total_per_run, options.max_total_subagents)
    return min((limit for limit in limits if limit is not None), default=None)


def _reply_limit(options: RunOptions, settings: SubagentsSettings) -> int:
    least, most = settings.concurrency_range
    return max(least, min(options.max_concurrent_subagents, most))


def _running_limit(options: RunOptions, settings: SubagentsSettings) -> int | None:
    """Return how many tasks of one run run at once; with `overflow: queue` the reply's limit applies too."""
    limits = [settings.max_running_per_run]
    if settings.overflow == "queue":
        limits.append(_reply_limit(options, settings))
    return min((limit for limit in limits if limit is not None), default=None)
