"""Removes the note about a failed answer once its question has an answer.

`TurnStartMiddleware` removes it earlier, when the question is sent again. A run that continues with the
stopped model call has no such step. The checkpoints of the failed run keep the note.
"""

from dataclasses import replace
from typing import ClassVar

from langchain_core.messages import RemoveMessage
from typing_extensions import override

from deerflow.agents.message_markers import outdated_failures
from deerflow.agents.middlewares.base import Audience, ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


class FailureNoteMiddleware(ChainMiddleware):
    """Removes the failure notes of earlier attempts at the last question, together with the new answer."""

    audience: ClassVar[Audience] = Audience.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        outdated = outdated_failures(request.state["messages"])
        if not outdated:
            return response
        # In the same list as the response: two writes to one channel would reach clients as two updates.
        gone = [RemoveMessage(id=message_id) for message_id in outdated]
        return replace(response, result=[*gone, *response.result])
