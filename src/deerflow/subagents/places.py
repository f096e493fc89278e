"""Lets a sub-agent ask its model only with a place at the gate, and give it back with its last answer."""

from typing import ClassVar

from langchain_core.messages import AIMessage
from typing_extensions import override

from deerflow.agents.middlewares import Audience, ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.subagents.executor import SubagentExecutor


class PlaceMiddleware(ChainMiddleware):
    """Has a task wait for its place here, so that all above is done while it stands in line.

    What is done with an answer that ends the work can wait as well, until those in line have asked.
    """

    audience: ClassVar[Audience] = Audience.SUBAGENT
    # A provider that has just failed is judged when the call is made, and a call's own place, of which there
    # are fewer, is not kept by one who stands in line.
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
