"""The value types that describe one task to the executor."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from deerflow.agents import Agent
from deerflow.agents.first_answer import FirstAnswer
from deerflow.context import RunContext
from deerflow.subagents.config import SubagentConfig
from deerflow.subagents.gate import Holder
from deerflow.subagents.limits import running_limit

STEPS_PER_TURN = 2


@dataclass(frozen=True, slots=True)
class Resume:
    """A person's answer to a task's question."""

    answer: object


@dataclass(frozen=True, eq=False, slots=True)
class TaskAgent:
    """The agent of a sub-agent type; any number of tasks share one."""

    graph: Agent
    opening: FirstAnswer | None = None
    """Produces the first answer without the graph; None where the graph is needed from the start."""
    waits_inside: bool = False
    """A middleware waits for the slot, just before the model call."""


@dataclass(frozen=True, slots=True)
class SubagentTask:
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
    let_go: Callable[[], Awaitable[None]] | None = None
    """Closes the model connections when the task ran on an event loop of its own."""
    is_background: bool = False
    resume: Resume | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Run id and task id: some models reuse their call ids in every conversation."""
        return self.context.run_id, self.task_id

    @property
    def name(self) -> str:
        """A name that is unique in the conversation, even where models reuse call ids."""
        return self.thread_id.rpartition("/")[2]

    @property
    def caller(self) -> tuple[str, str | None]:
        """The waiting caller: a run's lead agent (None), or one of its tasks."""
        return self.context.run_id, self.context.task_id

    @property
    def parent_key(self) -> tuple[str, str] | None:
        """The key of the parent task; None for tasks of the lead agent."""
        parent = self.context.task_id
        return None if parent is None else (self.context.run_id, parent)

    @property
    def holder(self) -> Holder:
        """The run and user that the task's slot counts for, with their limits."""
        settings = self.context.settings.subagents
        return Holder(
            run=self.context.run_id,
            user=self.context.user_id,
            per_run=running_limit(self.context.options, settings),
            per_user=settings.max_running_per_user,
        )

    def run_config(self, *, trace_id: str, answers: int) -> RunnableConfig:
        """Return the config of the graph; `answers` is the number of answered questions."""
        return {
            "configurable": {"thread_id": self.thread_id},
            # A backstop: `max_turns` is checked elsewhere, including turns before a restart.
            "recursion_limit": STEPS_PER_TURN * self.config.max_turns + STEPS_PER_TURN,
            "metadata": {"task_id": self.task_id, "trace_id": trace_id, "answers": answers},
        }
