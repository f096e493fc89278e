"""Create a task from the arguments of a `task` call: resolve its type, limits and agent."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from pydantic import BaseModel, Field, model_validator

from deerflow.agents.messages import is_question
from deerflow.context import RunContext
from deerflow.errors import InvalidInputError
from deerflow.subagents.builder import SubagentBuilder
from deerflow.subagents.config import TASK, SubagentConfig, TaskSpec, total_limit
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.registry import SubagentRegistry

MAX_LABEL_WORDS = 5
OTHER_SPELLINGS = {
    "agent": "subagent_type",
    "agent_type": "subagent_type",
    "task": "prompt",
    "run_in_background": "background",
}


class TaskArguments(BaseModel):
    """What `task` takes."""

    description: str = Field(description="Three to five words that name the task; people see them.")
    prompt: str = Field(
        min_length=1,
        description="All that it needs: goal, paths, limits, form of the answer. It sees nothing else.",
    )
    subagent_type: str = Field("general-purpose", description="Which sub-agent, by name.")
    max_turns: int | None = Field(None, ge=1, description="A lower limit on its turns, if you want one.")
    context: str | None = Field(None, description="Findings so far that it should build on.")
    background: bool = Field(
        False, description="Go on at once and hear of the result later; for long work beside your own."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_other_spellings(cls, values: Any) -> Any:
        """Accept alternative names, such as `agent` for `subagent_type` and `task` for `prompt`."""
        if not isinstance(values, dict):
            return values
        read = {OTHER_SPELLINGS.get(key, key): value for key, value in values.items()}
        if not read.get("description") and isinstance(read.get("prompt"), str):
            read["description"] = " ".join(read["prompt"].split()[:MAX_LABEL_WORDS])
        if isinstance(read.get("context"), Mapping | list):
            read["context"] = str(read["context"])
        return read


@dataclass(frozen=True, eq=False, slots=True)
class TaskFactory:
    """Creates tasks from `task` calls, for one value of the settings."""

    executor: SubagentExecutor
    builder: SubagentBuilder
    registry: SubagentRegistry

    def create(
        self, arguments: TaskArguments, *, task_id: str, context: RunContext, messages: Sequence[AnyMessage]
    ) -> TaskSpec:
        """Return the task that a call asks for; errors say what to do instead.

        Args:
            context: The context of the delegating agent.
            messages: Its conversation, including the call.
        """
        called = [each for message in this_turn(messages) for each in _call_ids(message, TASK)]
        self.check_total(context, task_id, called=called if context.depth == 0 else ())
        config = self.registry.get(arguments.subagent_type, has_shell=context.sandbox.refusal is None)
        if arguments.max_turns is not None:
            config = replace(config, max_turns=min(config.max_turns, arguments.max_turns))
        may_delegate = context.depth + 1 < context.settings.subagents.max_depth
        return self.new_task(
            config,
            task_id=task_id,
            thread_id=task_thread(context.thread_id, task_id, messages),
            description=arguments.description,
            prompt=_with_context(arguments.prompt, arguments.context),
            context=context,
            may_delegate=may_delegate,
            # A sub-agent waits for its own tasks: the end of one that outlives it would not be reported.
            is_background=arguments.background and context.depth == 0,
        )

    def new_task(
        self, config: SubagentConfig, *, context: RunContext, may_delegate: bool = False, **fields: Any
    ) -> TaskSpec:
        """Return a task of a type with the agent and the models that execute it."""
        return TaskSpec(
            config=config,
            model_name=self.builder.model_name(config, context.options),
            agent=self.builder.agent(
                config, context.options, user=context.user_id, may_delegate=may_delegate
            ),
            context=context,
            model=lambda: self.builder.model(config, context.options),
            close_models=self.builder.models.aclose,
            **fields,
        )

    def check_total(self, context: RunContext, task_id: str, *, called: Sequence[str | None] = ()) -> None:
        """Refuse a task beyond the number that one run may start, including tasks of sub-agents.

        Args:
            called: The tasks that the conversation starts, which outlives the process; the executor counts
                the tasks that are not in it.
        """
        total = total_limit(context.options, context.settings.subagents)
        if total is None:
            return
        started = self.executor.started(context.run_id)
        if task_id in called[total:] or (task_id not in started and len(started) >= total):
            raise InvalidInputError(
                f"this run may start {total} tasks and has done so; go on with what they found"
            )


def this_turn(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return the messages since the user's last one, oldest first."""
    return list(itertools.takewhile(lambda message: not is_question(message), reversed(messages)))[::-1]


def task_thread(thread_id: str, call_id: str, messages: Sequence[AnyMessage], *, tool: str = TASK) -> str:
    """Return the checkpoint thread of a call's task or team: the same after a restart, one for every call.

    The id of the message with the call is part of the name: some models reuse their call ids in every step.
    """
    calling = (message.id or "" for message in reversed(messages) if call_id in _call_ids(message, tool))
    return f"{thread_id}/{call_id}-{hashlib.sha256(next(calling, '').encode()).hexdigest()[:8]}"


def _call_ids(message: AnyMessage, tool: str) -> list[str | None]:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return [call["id"] for call in calls if call["name"] == tool]


def _with_context(prompt: str, context: str | None) -> str:
    return f"{prompt}\n\n<context>\n{context.strip()}\n</context>" if context and context.strip() else prompt
