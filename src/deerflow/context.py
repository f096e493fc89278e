"""RunContext: identity and capabilities of one run, passed to the agent, its middlewares and tools."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deerflow.config import Settings
from deerflow.domain import RunOptions, SkillUse, ThreadFolders
from deerflow.observability.watch import Watch
from deerflow.sandbox import Sandbox
from deerflow.skills.secrets import CommandSecrets
from deerflow.storage import EffectState
from deerflow.web.service import WebSession

Publish = Callable[[Mapping[str, Any]], None]
"""Publishes a `custom` event to the subscribers of the run; its `type` names the kind."""
RecordSkills = Callable[[Sequence[SkillUse]], Awaitable[None]]
"""Stores with the run which skills it uses."""
Spend = Callable[[str | None, Mapping[str, Any]], None]
"""Records the usage of a model call outside the conversation: its model (None: the run's) and usage."""


def _uncounted(model_name: str | None, usage: Mapping[str, Any]) -> None:
    """Discard the usage. Default for agents outside a run."""


async def _unrecorded(skills: Sequence[SkillUse]) -> None:
    """Record nothing. Default for agents outside a run."""


def _discard(event: Mapping[str, Any]) -> None:
    """Discard the event. Default for agents outside a run."""


class Effects(Protocol):
    """Registers tool calls with side effects before they execute."""

    async def start(self, call: bytes) -> EffectState | None:
        """Return once the call may execute, with the state that an earlier attempt recorded for it."""

    def finish(self, call: bytes) -> None:
        """Record that the call has finished."""


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
    """Nesting level: 0 for the lead agent, 1 for its sub-agents."""
    trace_id: str = ""
    is_interactive: bool = True
    publish: Publish = _discard
    publish_update: Publish = _discard
    """Publishes an `updates` event, as if a graph node had emitted it."""
    spend: Spend = _uncounted
    record_skills: RecordSkills = _unrecorded
    command_secrets: CommandSecrets | None = field(default=None, repr=False)
    """Secrets of skills for the current tool call; None if the user has none."""
    effects: Effects | None = None
    """None outside a run: nothing is resumed there."""
    web: WebSession | None = None
    """Searches and pages that the run's agents share; None outside a run."""
    watch: Watch = field(default_factory=Watch)
    """Metrics for operators, and spans if tracing is enabled."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Context keys of the client that DeerFlow does not define."""
