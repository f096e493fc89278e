"""A run: one execution of an agent in a thread, from request to final state, with its events.

An assistant is a named, versioned set of defaults for runs.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import add
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
    """Agent options of one run; equal options share one built agent."""

    model_name: str | None = None
    mode: str | None = None
    thinking_enabled: bool = True
    reasoning_effort: str | None = None
    is_plan_mode: bool = False
    subagent_enabled: bool | None = None
    """Whether the lead agent may delegate; None until `subagents.enabled` decides at admission."""
    max_concurrent_subagents: int = 3
    max_total_subagents: int | None = None
    agent_name: str | None = None
    is_bootstrap: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A validated request for a run, from any API."""

    thread_id: str
    user_id: str = DEFAULT_USER
    assistant_id: str = LEAD_AGENT
    input: Mapping[str, Any] | None = None
    """The graph's input, `{"messages": [...]}` with message dicts; None continues from the checkpoint."""
    command: Mapping[str, Any] | None = None
    """LangGraph's `Command` as a dict: `resume`, `goto`, `update`."""
    options: RunOptions = RunOptions()
    context: Mapping[str, Any] = field(default_factory=dict)
    """Further context keys of the client, passed to tools unchanged."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The caller's metadata for the run; also stored in its checkpoints and in its messages' metadata."""
    tags: tuple[str, ...] = ()
    """The caller's tags; stored wherever the metadata is, under `tags`."""
    stream_modes: tuple[str, ...] = ("values",)
    stream_subgraphs: bool = False
    on_disconnect: DisconnectMode = DisconnectMode.CANCEL
    multitask_strategy: MultitaskStrategy = MultitaskStrategy.REJECT
    checkpoint_id: str | None = None
    recursion_limit: int = 100
    interrupt_before: tuple[str, ...] | Literal["*"] = ()
    interrupt_after: tuple[str, ...] | Literal["*"] = ()
    is_interactive: bool = True
    """False where no user can answer a question (schedules, batch jobs)."""
    durability: Literal["sync", "async", "exit"] = "async"
    """When checkpoints are stored: before the next step, concurrently with it, or only at the end."""
    after_seconds: float | None = None
    """Delay before the run starts."""
    idempotency_key: str | None = None
    """A user's second request with the same key returns the run of the first."""
    deletes_thread: bool = False
    """Delete the thread when the run ends: for runs that were requested without a thread."""
    webhook: str | None = None
    """URL that is called when the run ends."""
    title: str | None = None
    """Title set at admission if the thread has none."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Tokens that one model read and wrote."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    """How many of the input tokens the provider had cached."""
    calls: int = 0

    def __add__(self, other: "ModelUse") -> "ModelUse":
        return ModelUse(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Token usage of a run, by consumer."""

    input_tokens: int = 0
    output_tokens: int = 0
    lead_tokens: int = 0
    subagent_tokens: int = 0
    llm_calls: int = 0
    middleware_tokens: int = 0
    """Used outside the conversation: for titles, summaries, suggestions."""
    models: Mapping[str, ModelUse] = field(default_factory=dict)
    """The same by model, as named in the settings."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Cost by currency, at the prices of that time."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "TokenUse") -> "TokenUse":
        models, costs = dict(self.models), dict(self.costs)
        for name, use in other.models.items():
            models[name] = models.get(name, ModelUse()) + use
        for currency, cost in other.costs.items():
            costs[currency] = costs.get(currency, 0.0) + cost
        return TokenUse(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            lead_tokens=self.lead_tokens + other.lead_tokens,
            subagent_tokens=self.subagent_tokens + other.subagent_tokens,
            llm_calls=self.llm_calls + other.llm_calls,
            middleware_tokens=self.middleware_tokens + other.middleware_tokens,
            models=models,
            costs=costs,
        )


@dataclass(frozen=True, slots=True)
class SkillUse:
    """A skill that a run used, as it was then."""

    name: str
    digest: str
    """SHA-256 over the files of the package."""
    version: str | None = None
    activated_by: Literal["slash", "read", "dependency"] = "read"
    """The user's slash, the agent that read or ran its files, or a skill that depends on it."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A stored run."""

    id: str
    request: RunRequest
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    attempt: int = 0
    """How often the run was claimed; the number fences off older workers."""
    owner: str | None = None
    error: str | None = None
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    message_count: int = 0
    cancel: CancelAction | None = None
    """A cancel request that was not applied yet."""
    releases: int = 0
    """How many of the attempts ended because their process was stopped."""
    skills: tuple[SkillUse, ...] = ()
    """The skills that it used so far, in the order of their activation."""

    @property
    def thread_id(self) -> str:
        return self.request.thread_id

    @property
    def user_id(self) -> str:
        return self.request.user_id


@dataclass(frozen=True, slots=True)
class Assistant:
    """One version of an assistant: the defaults of its runs."""

    id: str
    user_id: str
    created_at: datetime
    updated_at: datetime
    version: int = 1
    graph_id: str = LEAD_AGENT
    name: str = "Untitled"
    description: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


END = "end"
"""The kind of the last event of every run."""

_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One numbered event; `data` is JSON, ready to be sent."""

    seq: int
    unix_ms: int
    kind: str
    """The SSE event name: `metadata`, `values`, `messages`, `updates`, `custom`, `error`, `end`…"""
    data: bytes

    @property
    def id(self) -> str:
        return f"{self.unix_ms}-{self.seq}"


def seq_of(event_id: str | None) -> int:
    """Return the sequence number in `Last-Event-ID`: -1 (replay all) when absent, `-1` or unparsable."""
    if not event_id:
        return -1
    _, _, tail = event_id.rpartition("-")
    return -1 if event_id.startswith("-") else number_in(tail, default=-1)


def number_in(text: str, *, default: int) -> int:
    """Return the number that a client sent; `default` for anything else or beyond 64 bits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else default
