"""`task`: hands one part of the work to a sub-agent and returns what it found."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, model_validator

from deerflow.context import RunContext
from deerflow.errors import InvalidInputError
from deerflow.subagents.attempt import SubagentTask
from deerflow.subagents.builder import SubagentBuilder
from deerflow.subagents.config import SubagentResult, SubagentStatus
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.registry import SubagentRegistry
from deerflow.tools.define import Runtime, tool_of

TASK = "task"
MAX_BRIEF_CHARS = 2000
MAX_LABEL_WORDS = 5
OTHER_SPELLINGS = {"agent": "subagent_type", "agent_type": "subagent_type", "task": "prompt"}


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

    @model_validator(mode="before")
    @classmethod
    def _read_other_spellings(cls, values: Any) -> Any:
        """Accept `agent` and `task` for what we call `subagent_type` and `prompt`."""
        if not isinstance(values, dict):
            return values
        read = {OTHER_SPELLINGS.get(key, key): value for key, value in values.items()}
        if not read.get("description") and isinstance(read.get("prompt"), str):
            read["description"] = " ".join(read["prompt"].split()[:MAX_LABEL_WORDS])
        if isinstance(read.get("context"), Mapping | list):
            read["context"] = str(read["context"])
        return read


def make_task_tool(
    executor: SubagentExecutor, builder: SubagentBuilder, registry: SubagentRegistry
) -> BaseTool:
    """Return the `task` tool of one lead agent."""

    async def delegate(
        *,
        description: str,
        prompt: str,
        subagent_type: str,
        max_turns: int | None,
        context: str | None,
        runtime: Runtime,
    ) -> ToolMessage:
        """Hand one part of the work to a sub-agent that works on its own and reports back.

        Several task calls in one reply run in parallel. Give arguments in this order: description,
        prompt, subagent_type. The sub-agent shares your files but not this conversation, so its prompt
        must say everything. Use it for a part with several steps; do single steps yourself.
        """
        run = runtime.context
        config = registry.get(subagent_type, has_shell=run.sandbox.refusal is None)
        if max_turns is not None:
            config = replace(config, max_turns=min(config.max_turns, max_turns))
        messages = runtime.state.get("messages", ())
        _refuse_beyond_total(run, messages, runtime.tool_call_id or "")
        result = await executor.execute(
            SubagentTask(
                task_id=runtime.tool_call_id or "",
                thread_id=task_thread(run.thread_id, runtime.tool_call_id or "", messages),
                config=config,
                description=description,
                prompt=with_context(prompt, context),
                model_name=builder.model_name(config, run.options),
                agent=builder.agent(config, run.options),
                context=run,
            )
        )
        return answer(result)

    return tool_of(TASK, TaskArguments)(delegate)


def answer(result: SubagentResult) -> ToolMessage:
    """Return the result as the lead agent reads it, with the fields that clients read beside it."""
    fields = {
        "subagent_status": str(result.status),
        "subagent_result_brief": (result.result or "")[:MAX_BRIEF_CHARS] or None,
        "subagent_result_sha256": _digest(result.result),
        "subagent_error": result.error,
        "subagent_stop_reason": result.stop_reason,
        "subagent_model_name": result.model_name,
        "subagent_token_usage": dict(result.token_usage) or None,
    }
    return ToolMessage(
        _text(result),
        tool_call_id=result.task_id,
        name=TASK,
        status="success" if result.status is SubagentStatus.COMPLETED else "error",
        additional_kwargs={name: value for name, value in fields.items() if value is not None},
    )


def task_thread(thread_id: str, task_id: str, messages: Sequence[AnyMessage]) -> str:
    """Return the checkpoint thread of a task: the same after a restart, another one for every call.

    The message with the call is part of the name, since some models count their calls anew each turn.
    """
    asked_in = next((message.id or "" for message in reversed(messages) if task_id in task_ids(message)), "")
    return f"{thread_id}/{task_id}-{hashlib.sha256(asked_in.encode()).hexdigest()[:8]}"


def task_ids(message: AnyMessage) -> list[str | None]:
    """Return the ids of the tasks that a message starts."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return [call["id"] for call in calls if call["name"] == TASK]


def with_context(prompt: str, context: str | None) -> str:
    """Return the prompt with what is already known behind it."""
    return f"{prompt}\n\n<context>\n{context.strip()}\n</context>" if context and context.strip() else prompt


def _refuse_beyond_total(run: RunContext, messages: Sequence[AnyMessage], task_id: str) -> None:
    """Refuse a task beyond the number that one run may start; a client may lower it, not raise it."""
    limits = (run.settings.subagents.max_total_per_run, run.options.max_total_subagents)
    total = min((limit for limit in limits if limit is not None), default=None)
    if total is None:
        return
    turn = list(
        itertools.takewhile(lambda message: not isinstance(message, HumanMessage), reversed(messages))
    )
    started = [each for message in reversed(turn) for each in task_ids(message)]
    if task_id in started[total:]:
        raise InvalidInputError(
            f"this run may start {total} tasks and has done so; go on with what they found"
        )


def _text(result: SubagentResult) -> str:
    """Return the words; clients of DeerFlow 2 read the status from how they begin."""
    found = f"\n\nFound so far:\n{result.result}" if result.result else ""
    match result.status:
        case SubagentStatus.COMPLETED if result.stop_reason is None:
            return f"Task Succeeded. Result: {result.result or 'done, nothing to report'}"
        case SubagentStatus.COMPLETED:
            return f"Task Succeeded. Result: (incomplete: {result.error})\n{result.result or ''}"
        case SubagentStatus.TIMED_OUT:
            return f"Task timed out: {result.error}.{found}"
        case SubagentStatus.CANCELLED:
            return f"Task cancelled by user.{found}"
        case _:
            return f"Task failed. Error: {result.error}{found}"


def _digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
