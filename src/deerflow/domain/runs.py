"""A run: one trip of an agent through a thread, from request to final state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from deerflow.domain.ids import DEFAULT_USER

LEAD_AGENT = "lead_agent"


class RunStatus(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"

    @property
    def is_terminal(self) -> bool:
        return self not in (RunStatus.PENDING, RunStatus.RUNNING)


class DisconnectMode(StrEnum):
    """What happens to a run whose reader leaves."""

    CANCEL = "cancel"
    CONTINUE = "continue"


class MultitaskStrategy(StrEnum):
    """What happens when a thread is asked for a run while it has one."""

    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
    ENQUEUE = "enqueue"


class CancelAction(StrEnum):
    """How a run is stopped: keep what it did, or put the thread back."""

    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a caller may choose about the agent of one run; equal options share one built agent."""

    model_name: str | None = None
    mode: str | None = None
    thinking_enabled: bool = True
    reasoning_effort: str | None = None
    is_plan_mode: bool = False
    subagent_enabled: bool = False
    max_concurrent_subagents: int = 3
    max_total_subagents: int | None = None
    agent_name: str | None = None
    is_bootstrap: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A well-formed wish for a run, from whichever door it came in."""

    thread_id: str
    user_id: str = DEFAULT_USER
    assistant_id: str = LEAD_AGENT
    input: Mapping[str, Any] | None = None
    """The graph's input, `{"messages": [...]}` with message dicts; None goes on from the checkpoint."""
    command: Mapping[str, Any] | None = None
    """LangGraph's `Command` as a dict: `resume`, `goto`, `update`."""
    options: RunOptions = RunOptions()
    context: Mapping[str, Any] = field(default_factory=dict)
    """Further context keys of the client, handed to tools as they are."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the caller notes about the run; its checkpoints and the metadata of its messages carry it too."""
    tags: tuple[str, ...] = ()
    """Further notes without values: they go where the metadata goes, under `tags`."""
    stream_modes: tuple[str, ...] = ("values",)
    stream_subgraphs: bool = False
    on_disconnect: DisconnectMode = DisconnectMode.CANCEL
    multitask_strategy: MultitaskStrategy = MultitaskStrategy.REJECT
    checkpoint_id: str | None = None
    recursion_limit: int = 100
    interrupt_before: tuple[str, ...] | Literal["*"] = ()
    interrupt_after: tuple[str, ...] | Literal["*"] = ()
    is_interactive: bool = True
    """False where nobody can answer a question (schedules, batch jobs)."""
    durability: Literal["sync", "async", "exit"] = "async"
    """When checkpoints are stored: before the next step, beside it, or only at the end."""
    after_seconds: float | None = None
    """How long the run waits before it starts."""
    idempotency_key: str | None = None
    """A user's second request with the same key is answered with the first one's run."""
    deletes_thread: bool = False
    """The thread goes with the end of the run: for runs that nobody gave a thread."""
    webhook: str | None = None
    """An address that is told of the run's end."""
    title: str | None = None
    """The title that a thread without one gets as the run is admitted."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Tokens that one model read and wrote."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    """How many of the input tokens the provider had cached."""
    calls: int = 0


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Tokens spent, by who spent them."""

    input_tokens: int = 0
    output_tokens: int = 0
    lead_tokens: int = 0
    subagent_tokens: int = 0
    llm_calls: int = 0
    middleware_tokens: int = 0
    """Spent beside the conversation: on titles, summaries, suggestions."""
    models: Mapping[str, ModelUse] = field(default_factory=dict)
    """The same by model, as the settings name them."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """What it cost by currency, at the prices of that moment."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the database has it."""

    id: str
    request: RunRequest
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    attempt: int = 0
    """How often a worker took the run up; the number fences off older workers."""
    owner: str | None = None
    error: str | None = None
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    message_count: int = 0
    cancel: CancelAction | None = None
    """The wish to stop that the run has not followed yet."""
    spared: int = 0
    """How many of the attempts ended because their process was told to stop."""

    @property
    def thread_id(self) -> str:
        return self.request.thread_id

    @property
    def user_id(self) -> str:
        return self.request.user_id
