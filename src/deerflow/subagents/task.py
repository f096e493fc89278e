"""One piece of delegated work, as it is handed to the executor."""

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
    """What a person answered to a task's question."""

    answer: object


@dataclass(frozen=True, eq=False, slots=True)
class TaskAgent:
    """The agent behind a type of sub-agent, ready for any number of tasks."""

    graph: Agent
    opening: FirstAnswer | None = None
    """Gives the first answer without the graph; None where the graph is needed from the start."""
    waits_inside: bool = False
    """It waits for its place itself, just before it asks its model."""


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """One piece of delegated work, with the agent that does it."""

    task_id: str
    """The id of the `task` call."""
    thread_id: str
    """The task's own checkpoint thread."""
    config: SubagentConfig
    description: str
    prompt: str
    model_name: str | None
    agent: TaskAgent
    context: RunContext
    """That of the agent which delegates."""
    model: Callable[[], BaseChatModel] | None = None
    """Returns a model for summaries; without one a long result loses its middle."""
    let_go: Callable[[], Awaitable[None]] | None = None
    """Closes the connections that a loop of its own has opened, when that loop ends."""
    is_background: bool = False
    resume: Resume | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Run and task: some models count their calls anew in every conversation."""
        return self.context.run_id, self.task_id

    @property
    def name(self) -> str:
        """What no other task of the conversation is called, also where models use an id again."""
        return self.thread_id.rpartition("/")[2]

    @property
    def caller(self) -> tuple[str, str | None]:
        """Who waits for its result: a run's lead agent, or one of its tasks."""
        return self.context.run_id, self.context.task_id

    @property
    def parent_key(self) -> tuple[str, str] | None:
        """The task that delegates; None when the lead agent does."""
        parent = self.context.task_id
        return None if parent is None else (self.context.run_id, parent)

    @property
    def holder(self) -> Holder:
        """Who takes the task's place at the gate, within which limits."""
        settings = self.context.settings.subagents
        return Holder(
            run=self.context.run_id,
            user=self.context.user_id,
            per_run=running_limit(self.context.options, settings),
            per_user=settings.max_running_per_user,
        )

    def run_config(self, *, trace_id: str, answers: int) -> RunnableConfig:
        """Return what the graph is run with; `answers` counts the questions that people answered."""
        return {
            "configurable": {"thread_id": self.thread_id},
            # A net below the count of turns, which also knows of turns before a restart.
            "recursion_limit": STEPS_PER_TURN * self.config.max_turns + STEPS_PER_TURN,
            "metadata": {"task_id": self.task_id, "trace_id": trace_id, "answers": answers},
        }
