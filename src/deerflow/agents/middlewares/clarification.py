"""Drops all other tool calls of a response that asks the user a question.

`ask_clarification` ends the turn. Other calls of the same response would be based on a guess and would
continue the turn, so they are dropped: the user's answer decides about them.
"""

import logging
from typing import ClassVar

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import Audience, ChainMiddleware
from deerflow.agents.middlewares.tool_call_removal import without_calls
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

logger = logging.getLogger(__name__)

ASK_CLARIFICATION = "ask_clarification"


class ClarificationMiddleware(ChainMiddleware):
    """Drops every other call of a response that calls `ask_clarification`."""

    audience: ClassVar[Audience] = Audience.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        others = calls_beside_a_question(response)
        if not others:
            return response
        logger.info("run %s: %d calls beside a question dropped", request.runtime.context.run_id, len(others))
        return without_calls(response, others)


def calls_beside_a_question(response: ModelResponse[object]) -> set[str | None]:
    """Return the ids of all calls except the first question; empty if there is no question."""
    calls = [
        call for message in response.result if isinstance(message, AIMessage) for call in message.tool_calls
    ]
    question = next((call["id"] for call in calls if call["name"] == ASK_CLARIFICATION), None)
    return set() if question is None else {call["id"] for call in calls if call["id"] != question}
