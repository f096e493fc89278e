"""RunContext: what one run carries down through agent, middlewares and tools."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deerflow.config import Settings
from deerflow.domain import RunOptions, ThreadFolders
from deerflow.observability.watch import Watch
from deerflow.sandbox import Sandbox
from deerflow.storage import EffectState

Publish = Callable[[Mapping[str, Any]], None]
"""Sends a `custom` event up to the people watching; its `type` says what it is."""
Told = Callable[[], Awaitable[None]]


Spend = Callable[[str | None, Mapping[str, Any]], None]
"""Counts what a call beside the conversation spent: the model's name (None: the run's own) and its usage."""


def _uncounted(model_name: str | None, usage: Mapping[str, Any]) -> None:
    """Count nothing: for agents that run outside a run."""


def _nobody(event: Mapping[str, Any]) -> None:
    """Publish to nobody: for agents that run outside a run."""


async def _known_at_once() -> None:
    """Wait for nobody: for agents that run outside a run."""


class Effects(Protocol):
    """Where tool calls that change something announce themselves."""

    async def start(self, call: bytes) -> EffectState | None:
        """Return once the call may run; with what an earlier attempt left of it."""

    def finish(self, call: bytes) -> None:
        """Note that the call is done."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """Identity and capabilities of one run; a sub-agent gets a copy with its `task_id`."""

    run_id: str
    thread_id: str
    user_id: str
    settings: Settings
    folders: ThreadFolders
    sandbox: Sandbox
    options: RunOptions = RunOptions()
    attempt: int = 1
    task_id: str | None = None
    """The task this context belongs to; None for the lead agent."""
    depth: int = 0
    """How many tasks are above: 0 for the lead agent, 1 for its sub-agents."""
    trace_id: str = ""
    is_interactive: bool = True
    publish: Publish = _nobody
    told: Told = _known_at_once
    """Returns when readers can see everything that was published."""
    publish_update: Publish = _nobody
    """Sends an `updates` event, as if a node of the graph had reported it."""
    spend: Spend = _uncounted
    effects: Effects | None = None
    """None outside a run: nothing is resumed there."""
    watch: Watch = field(default_factory=Watch)
    """Who looks on: numbers for operators, and spans where they are collected."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Context keys of the client that DeerFlow has no word for."""
