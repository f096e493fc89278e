"""Ensures that every turn ends with text.

Models sometimes end a turn with only a thought, or with nothing. The model is called once more; if that
response is empty too, the answer says so instead of being blank.
"""

from dataclasses import replace
from typing import Any

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.early_stop import stopped_answer
from deerflow.agents.middlewares.tags import reminder
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

AGAIN = (
    "Your last reply had no text and no tool call, so the user saw nothing. Give your answer now, as visible "
    "text, or make the call you meant to make."
)
NOTHING = "The model gave no answer, also when asked again. Ask again, or choose another model."


class EmptyAnswerMiddleware(ChainMiddleware):
    """Calls the model once more after an empty response."""

    before = ("MalformedCallMiddleware",)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        if not is_empty(response):
            return response
        second = await handler(request.override(messages=[*request.messages, reminder(AGAIN)]))
        if not is_empty(second):
            return second
        result = [_spoken(message) for message in second.result]
        return replace(second, result=result)


def is_empty(response: ModelResponse[Any]) -> bool:
    """Return whether a response has nothing that a client would display."""
    answers = [message for message in response.result if isinstance(message, AIMessage)]
    return bool(answers) and not any(_says_something(message) for message in answers)


def _says_something(message: AIMessage) -> bool:
    if message.tool_calls or message.invalid_tool_calls or message.text.strip():
        return True
    blocks = message.content if isinstance(message.content, list) else []
    silent = ("text", "thinking", "reasoning", "redacted_thinking")
    return any(isinstance(block, dict) and block.get("type") not in silent for block in blocks)


def _spoken(message: BaseMessage) -> BaseMessage:
    return stopped_answer(message, code="empty_answer", reason=NOTHING)
