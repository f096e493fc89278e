"""Middleware that takes a task's slot before a model call and releases it after the last answer."""

from typing import ClassVar

from langchain_core.messages import AIMessage
from typing_extensions import override

from deerflow.agents.middlewares import Audience, ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.subagents.executor import SubagentExecutor


class PlaceMiddleware(ChainMiddleware):
    """Waits for the task's slot here, so that the outer middlewares run while the task is queued.

    The processing of a final answer waits as well, until queued tasks have sent their requests.
    """

    audience: ClassVar[Audience] = Audience.SUBAGENT
    # The circuit breaker is checked when the call is made, and the slot of a model call, of which there are
    # fewer, is not held by a queued task.
    before = ("ModelErrorMiddleware", "CallLimitMiddleware")

    def __init__(self, executor: SubagentExecutor) -> None:
        super().__init__()
        self._executor = executor

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        context = request.runtime.context
        task_id = context.task_id or ""
        await self._executor.enter(context.run_id, task_id)
        response = await handler(request)
        if not any(isinstance(each, AIMessage) and each.tool_calls for each in response.result):
            await self._executor.leave(context.run_id, task_id)
        return response
