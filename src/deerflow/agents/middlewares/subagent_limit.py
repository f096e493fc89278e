"""Limits how many sub-agents one response may start.

Only `task` calls beyond the limit are dropped. This happens inside the model call, so that the stored
response never has a call that was not run.
"""

import logging

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.tool_call_removal import without_calls
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

logger = logging.getLogger(__name__)

TASK = "task"


class SubagentLimitMiddleware(ChainMiddleware):
    """Drops the `task` calls of one response beyond `limit`; for every agent that may delegate."""

    def __init__(self, *, limit: int) -> None:
        super().__init__()
        self._limit = limit

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        excess = excess_tasks(response, self._limit)
        if not excess:
            return response
        logger.warning(
            "run %s: %d task calls dropped, one reply may start %d",
            request.runtime.context.run_id,
            len(excess),
            self._limit,
            extra={"trace_id": request.runtime.context.trace_id},
        )
        return without_calls(response, excess)


def excess_tasks(response: ModelResponse[object], limit: int) -> set[str | None]:
    """Return the ids of the `task` calls beyond the first `limit`."""
    tasks = [
        call["id"]
        for message in response.result
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] == TASK
    ]
    return set(tasks[limit:])
