"""Lets an agent keep a visible plan in plan mode.

Every agent has the tool, but only requests in plan mode offer it, so that the mode needs no second agent.
"""

from typing import Annotated, Any, Literal

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from pydantic import BaseModel, Field, StringConstraints
from typing_extensions import override

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware
from deerflow.agents.middlewares.reminder import extended
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.tools.define import Runtime, refuse, tool_of

WRITE_TODOS = "write_todos"
MAX_TODOS = 100
RULE = """\
<todo_list_system>
This is plan mode. For work of three or more steps, write the plan with write_todos before you start, and
keep it true: set an item to in_progress when you begin it and to completed as soon as it is done, one item
in progress at a time. Change the plan when you learn something new. Small questions need no plan. Before
your final answer every item is completed, or you say why not.
</todo_list_system>"""


class TodoItem(BaseModel):
    """One item of the plan."""

    content: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)] = Field(
        description="What is to be done."
    )
    status: Literal["pending", "in_progress", "completed"] = Field("pending", description="How far it is.")


class TodoArguments(BaseModel):
    """What `write_todos` takes."""

    todos: list[TodoItem] = Field(max_length=MAX_TODOS, description="The whole plan, in order.")


@tool_of(WRITE_TODOS, TodoArguments, is_safe_to_repeat=True)
async def write_todos_tool(*, todos: list[TodoItem], runtime: Runtime) -> Command[Any]:
    """Write your plan: the whole list each time, with at most one item in progress.

    People see it while you work. Do not call it twice in one reply.
    """
    running = [todo.content for todo in todos if todo.status == "in_progress"]
    if len(running) > 1:
        raise refuse(f"Only one item may be in progress, not {len(running)}. The plan was not changed.")
    plan = [{"content": todo.content, "status": todo.status} for todo in todos]
    done = sum(todo.status == "completed" for todo in todos)
    said = ToolMessage(
        f"The plan has {len(plan)} items, {done} of them completed.",
        tool_call_id=runtime.tool_call_id or "",
        name=WRITE_TODOS,
    )
    return Command(update={"todos": plan, "messages": [said]})


class TodoMiddleware(ChainMiddleware):
    """Offers `write_todos` and its rules to runs in plan mode."""

    switch = "todo"
    applies_to = AgentKind.LEAD
    before = ("LoopDetectionMiddleware", "ReadyToolsMiddleware")

    def __init__(self) -> None:
        super().__init__()
        self.tools = [write_todos_tool]

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        if request.runtime.context.options.is_plan_mode:
            return await handler(request.override(system_message=extended(request.system_message, RULE)))
        tools = [
            tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name == WRITE_TODOS)
        ]
        return await handler(request.override(tools=tools))
