"""Lets a sub-agent ask its model only with a place at the gate."""

from typing import ClassVar

from typing_extensions import override

from deerflow.agents.middlewares import Audience, HouseMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.subagents.executor import SubagentExecutor


class PlaceMiddleware(HouseMiddleware):
    """Has a task wait for its place here, so that all above is done while it stands in line."""

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
        await self._executor.enter(context.run_id, context.task_id or "")
        return await handler(request)
