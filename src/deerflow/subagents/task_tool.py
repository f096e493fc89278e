"""The `task` tool: delegates part of the work to a sub-agent and returns its result."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import interrupt

from deerflow.agents.messages import STARTED
from deerflow.subagents.config import (
    TASK,
    ResumeAnswer,
    SubagentResult,
    SubagentStatus,
    TaskSpec,
)
from deerflow.subagents.delegation import TaskArguments, TaskFactory
from deerflow.subagents.executor import SubagentExecutor
from deerflow.tools.define import Runtime, tool_of

MAX_BRIEF_CHARS = 2000


def make_task_tool(tasks: TaskFactory) -> BaseTool:
    """Return the `task` tool for agents with these settings."""

    async def delegate(*, runtime: Runtime, **values: Any) -> ToolMessage:
        """Hand one part of the work to a sub-agent that works on its own and reports back.

        Several task calls in one reply run in parallel. Give arguments in this order: description,
        prompt, subagent_type. The sub-agent shares your files but not this conversation, so its prompt
        must say everything. Use it for a part with several steps; do single steps yourself.
        """
        task = tasks.create(
            TaskArguments.model_construct(**values),
            task_id=runtime.tool_call_id or "",
            context=runtime.context,
            messages=runtime.state.get("messages", ()),
        )
        if task.is_background:
            tasks.executor.execute_async(task)
            return started_message(task)
        return result_message(await _execute(tasks.executor, task))

    # A sub-agent continues from its own checkpoint, and repeated effects are checked for its own tools.
    return tool_of(TASK, TaskArguments, is_safe_to_repeat=True)(delegate)


async def _execute(executor: SubagentExecutor, task: TaskSpec) -> SubagentResult:
    """Run a task to its end; put its questions to a person and resume it with the answers.

    When an answer comes, the call is executed again from the start. `interrupt` is called again for the
    questions answered before and returns the same answers, so that each question gets its own.
    """
    result = await executor.execute(task)
    asked = 0
    while result.question is not None:
        answer: object = None
        while asked <= result.question.number:
            answer = interrupt(question_for_person(result))
            asked += 1
        result = await executor.execute(replace(task, resume=ResumeAnswer(answer)))
    return result


def question_for_person(asking: SubagentResult) -> Any:
    """Return a task's question as clients get it: the tool's own value, with task id and description."""
    value = asking.question.value if asking.question is not None else None
    if not isinstance(value, Mapping):
        return value
    asked = {**value, "task_id": asking.task_id, "subagent": asking.description}
    actions = value.get("action_requests")
    if isinstance(actions, list):
        name = asking.description or asking.task_id
        asked["action_requests"] = [
            {**action, "description": f"The sub-agent “{name}” asks: {action.get('description', '')}"}
            for action in actions
        ]
    return asked


def started_message(task: TaskSpec) -> ToolMessage:
    """Return the tool message for a task started in the background."""
    return ToolMessage(
        f"Task started in the background with id {task.task_id}. Go on with other work: you are told when it "
        "ends. task_status, task_result, task_message and task_cancel take its id.",
        tool_call_id=task.task_id,
        name=TASK,
        additional_kwargs={
            "subagent_status": "running",
            STARTED: True,
            "subagent_model_name": task.model_name,
        },
    )


def result_message(result: SubagentResult) -> ToolMessage:
    """Return the tool message with the result: text for the lead agent, fields for clients."""
    return ToolMessage(
        result_text(result),
        tool_call_id=result.task_id,
        name=TASK,
        status="success" if result.status is SubagentStatus.COMPLETED else "error",
        additional_kwargs=_fields(result),
    )


def _fields(result: SubagentResult) -> dict[str, Any]:
    digest = None if result.result is None else hashlib.sha256(result.result.encode()).hexdigest()
    fields = {
        "subagent_status": str(result.status),
        "subagent_result_brief": (result.result or "")[:MAX_BRIEF_CHARS] or None,
        "subagent_result_sha256": digest,
        "subagent_result_file": result.result_file,
        "subagent_error": result.error,
        "subagent_stop_reason": result.stop_reason,
        "subagent_model_name": result.model_name,
        "subagent_token_usage": dict(result.token_usage) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def result_text(result: SubagentResult) -> str:
    """Return the text of a result; DeerFlow 2 clients parse the status from its first words."""
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
