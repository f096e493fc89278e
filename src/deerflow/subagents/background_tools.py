"""Tools with which the lead agent lists, reads, steers and cancels its background tasks."""

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from deerflow.errors import NotFoundError
from deerflow.subagents.background import Background, report_fields
from deerflow.subagents.config import SubagentResult
from deerflow.subagents.task_tool import result_text
from deerflow.tools.define import PlainText, Runtime, tool_of


class StatusArguments(BaseModel):
    """What `task_status` takes."""

    task_id: str | None = Field(None, description="One task; without it, all background tasks.")


class TaskId(BaseModel):
    """What `task_cancel` takes."""

    task_id: str = Field(min_length=1, description="The id that task returned.")


class ResultArguments(TaskId):
    """What `task_result` takes."""

    wait: bool = Field(True, description="Wait until it has ended; false: say how it stands now.")


class MessageArguments(TaskId):
    """What `task_message` takes."""

    message: PlainText = Field(min_length=1, max_length=20_000, description="What it should know or change.")


def make_background_tools(background: Background) -> list[BaseTool]:
    """Return the four tools; the lead agent is offered them once it has a background task."""
    executor = background.executor

    def known(runtime: Runtime, task_id: str) -> SubagentResult:
        background.restart(runtime.context, runtime.state.get("messages", ()))
        found = executor.get(runtime.context.run_id, task_id)
        if found is None:
            ids = [each.task_id for each in executor.list(runtime.context.run_id) if each.is_background]
            raise NotFoundError("background task", task_id, known=ids)
        return found

    def report(runtime: Runtime, result: SubagentResult, tool: str) -> ToolMessage:
        executor.take_unreported(runtime.context.run_id, result.task_id)  # this message reports the result
        call_id, fields = runtime.tool_call_id or "", report_fields([result])
        return ToolMessage(result_text(result), tool_call_id=call_id, name=tool, additional_kwargs=fields)

    @tool_of("task_status", StatusArguments, is_safe_to_repeat=True)
    async def task_status(*, task_id: str | None, runtime: Runtime) -> str:
        """Say how background tasks stand."""
        if task_id is not None:
            return _line(known(runtime, task_id))
        background.restart(runtime.context, runtime.state.get("messages", ()))
        tasks = [each for each in executor.list(runtime.context.run_id) if each.is_background]
        return "\n".join(map(_line, tasks)) or "There are no background tasks."

    @tool_of("task_result", ResultArguments, is_safe_to_repeat=True)
    async def task_result(*, task_id: str, wait: bool, runtime: Runtime) -> ToolMessage | str:
        """Return what a background task found, once it has ended."""
        result = known(runtime, task_id)
        if wait and not result.status.is_terminal:
            result = await background.wait(runtime.context, task_id)
        return report(runtime, result, "task_result") if result.status.is_terminal else _line(result)

    @tool_of("task_message", MessageArguments)
    async def task_message(*, task_id: str, message: str, runtime: Runtime) -> str:
        """Tell a running background task something; it reads it before its next step."""
        result = known(runtime, task_id)
        if not executor.send(runtime.context.run_id, task_id, message):
            return f"Not told: {_line(result)}"
        return f"Task {task_id} reads it before its next step."

    @tool_of("task_cancel", TaskId, is_safe_to_repeat=True)
    async def task_cancel(*, task_id: str, runtime: Runtime) -> ToolMessage | str:
        """Stop a background task; what it has found so far is kept."""
        result = known(runtime, task_id)
        if not executor.request_cancel(runtime.context.run_id, task_id):
            return f"Not stopped: {_line(result)}"
        return report(runtime, await executor.wait(runtime.context.run_id, task_id), "task_cancel")

    return [task_status, task_result, task_message, task_cancel]


def _line(result: SubagentResult) -> str:
    waits = ", waits for a person's answer" if result.question is not None else ""
    return f"{result.task_id}  {result.status}{waits}  {result.description}"
