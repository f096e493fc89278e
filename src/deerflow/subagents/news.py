"""Middlewares that add messages from DeerFlow to an agent's conversation between its steps.

The lead agent gets the results of ended background tasks; a sub-agent gets the messages sent to it while it
runs. An answer that would end the turn is followed by another model call when there are new messages.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt
from typing_extensions import override

from deerflow.agents.middlewares import Audience, ChainMiddleware
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolCall, ToolHandler, ToolResult
from deerflow.context import RunContext
from deerflow.subagents.background import Background, has_background, note
from deerflow.subagents.background_questions import TASK_QUESTION, ask_for_task, question_message
from deerflow.subagents.background_tools import TASK_TOOLS
from deerflow.subagents.executor import SubagentExecutor

News = Callable[[], Awaitable[list[AnyMessage]]]
"""Returns the messages to add now."""


class BackgroundMiddleware(ChainMiddleware):
    """Reports ended background tasks to the lead agent, and keeps its turn open until all have ended."""

    audience: ClassVar[Audience] = Audience.LEAD

    def __init__(self, background: Background) -> None:
        super().__init__()
        self._background = background

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        context = request.runtime.context
        messages = cast("ThreadState", request.state)["messages"]
        if not has_background(messages):
            return await handler(request.override(tools=_without_task_tools(request)))
        self._background.revive(context, messages)
        return await with_news(
            request,
            handler,
            before=lambda: self._news(context, messages),
            after=lambda: self._rest(context, messages),
        )

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        """Ask the questions of tasks; before any interrupt, wait until no background task is running."""
        context = cast("RunContext", request.runtime.context)
        try:
            if request.tool_call["name"] != TASK_QUESTION:
                return await handler(request)
            messages = request.state["messages"]
            return await ask_for_task(self._background, request.tool_call, context=context, messages=messages)
        except GraphInterrupt:
            await self._background.at_rest(context)  # the run stops here and would cancel running tasks
            raise

    async def _news(self, context: RunContext, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        told, asking = self._background.news(context, messages), self._background.asking(context)
        news: list[AnyMessage] = [] if told is None else [told]
        return [*news, question_message(asking, wait=False)] if asking else news

    async def _rest(self, context: RunContext, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        await self._background.at_rest(context)
        told, asking = self._background.news(context, messages), self._background.asking(context)
        if not asking:
            return [] if told is None else [told]
        # Some providers require a message of another role between two AI messages.
        return [told or note("Background tasks need a person's word."), question_message(asking, wait=True)]


class InboxMiddleware(ChainMiddleware):
    """Adds the messages in a sub-agent's inbox to its conversation."""

    audience: ClassVar[Audience] = Audience.SUBAGENT

    def __init__(self, executor: SubagentExecutor) -> None:
        super().__init__()
        self._executor = executor

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        context = request.runtime.context

        async def told() -> list[AnyMessage]:
            taken = self._executor.take_messages(context.run_id, context.task_id or "")
            return [note(text) for text in taken]

        return await with_news(request, handler, before=told, after=told)


async def with_news(
    request: ModelCall, handler: ModelHandler, *, before: News, after: News
) -> ModelResponse[Any]:
    """Call the model with the new messages appended, and again while a final answer meets more of them.

    New messages that contain tool calls are the answer: the model is called after the tools have run.

    Args:
        after: Called when the answer has no tool calls, so that it would be the last one.
    """
    said: list[BaseMessage] = list(await before())
    response: ModelResponse[Any] = ModelResponse(result=[])
    while not _wants_tools(said):
        asked = request.override(messages=[*request.messages, *cast("list[AnyMessage]", said)])
        response = await handler(asked if said else request)
        said += response.result
        if _wants_tools(response.result):
            break
        more = await after()
        if not more:
            break
        said += more
    return response if len(said) == len(response.result) else replace(response, result=said)


def _wants_tools(messages: Sequence[BaseMessage]) -> bool:
    return any(isinstance(each, AIMessage) and each.tool_calls for each in messages)


def _without_task_tools(request: ModelCall) -> list[BaseTool | dict[str, Any]]:
    return [tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name in TASK_TOOLS)]
