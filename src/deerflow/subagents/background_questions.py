"""Put the question of a background task to a person, and pass the answer to the task.

The question must be the run's own interrupt, so that it is stored, shown and answered like every other. So
DeerFlow adds a tool call for it to the lead agent's conversation, between two steps or before the turn ends,
and that call interrupts. Its arguments name the task and the number of the question: when the answer comes,
in any process, the call is executed again from its start and finds both.
"""

from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage
from langgraph.types import interrupt
from pydantic import BaseModel, ValidationError

from deerflow.agents.message_markers import call_id
from deerflow.context import RunContext
from deerflow.domain import new_id
from deerflow.errors import DeerFlowError, InvalidInputError
from deerflow.subagents.background import Background, told_fields
from deerflow.subagents.config import SubagentResult
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.task_tool import as_asked, result_text

TASK_QUESTION = "task_question"
"""The name of the tool call; models are not offered it."""


class QuestionCall(BaseModel):
    """Arguments of the call: which question of which task to ask."""

    task_id: str
    number: int
    """Number of the task's questions answered before this one."""
    wait: bool = False
    """Return only when the task has ended: the lead agent has nothing else to do."""


def question_message(asking: Sequence[SubagentResult], *, wait: bool) -> AIMessage:
    """Return the AI message with which DeerFlow calls for the questions of background tasks."""
    wanted = [
        QuestionCall(task_id=each.task_id, number=each.question.number, wait=wait)
        for each in asking
        if each.question is not None
    ]
    calls = [
        ToolCall(name=TASK_QUESTION, args=each.model_dump(), id=call_id("ask", new_id())) for each in wanted
    ]
    return AIMessage("", tool_calls=calls, id=new_id())


async def ask_for_task(
    background: Background, call: ToolCall, *, context: RunContext, messages: Sequence[AnyMessage]
) -> ToolMessage:
    """Put a task's question to a person, and resume the task with the answer.

    Args:
        messages: The lead agent's conversation, including the call that started the task.
    """
    try:
        wanted = QuestionCall.model_validate(call["args"])
        background.revive(context, messages)
        result = await _answered(background.executor, wanted, context.run_id)
    except (DeerFlowError, ValidationError) as error:
        return _message(call, f"Error: {error}").model_copy(update={"status": "error"})
    if not result.status.is_terminal:
        return _message(call, f"A person has answered what task {result.task_id} asked; it goes on.")
    background.executor.take_unreported(context.run_id, result.task_id)  # this message reports the result
    return _message(call, result_text(result), told_fields([result]))


async def _answered(executor: SubagentExecutor, wanted: QuestionCall, run_id: str) -> SubagentResult:
    """Return the task after its question was answered; with `wait`, after it has ended.

    When the call is repeated, `interrupt` is called again for the questions answered before and returns the
    same answers.
    """
    result = await executor.wait(run_id, wanted.task_id)
    asked = wanted.number
    while (question := result.question) is not None:
        if asked > question.number:
            raise InvalidInputError(f"task {wanted.task_id} asks something else: question {question.number}")
        given = [interrupt(as_asked(result, question)) for _ in range(asked, question.number + 1)][-1]
        asked = question.number + 1
        executor.answer(run_id, wanted.task_id, given)
        if not wanted.wait:
            break
        result = await executor.wait(run_id, wanted.task_id)
    return executor.get(run_id, wanted.task_id) or result


def _message(call: ToolCall, text: str, fields: Mapping[str, object] | None = None) -> ToolMessage:
    return ToolMessage(
        text, tool_call_id=call["id"] or "", name=TASK_QUESTION, additional_kwargs=dict(fields or {})
    )
