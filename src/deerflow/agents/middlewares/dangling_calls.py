"""Repairs the history of a thread whose last turn was stopped during a tool call or a response.

Providers reject a history in which a tool call has no result. The missing results are added to the request
only, so that a resumed turn still finds its calls without results and runs them. Of an incomplete response
the model sees only the text: an incomplete thinking block has no signature, and providers require one.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, InvalidToolCall, ToolCall, ToolMessage
from typing_extensions import override

from deerflow.agents.message_markers import ENDED, NOTE
from deerflow.agents.message_types import is_ai, is_result, may_have_results
from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

INTERRUPTED = "This call was interrupted and has no result. Make it again if you still need it."


class DanglingToolCallMiddleware(ChainMiddleware):
    """Adds a result for every unanswered tool call of the request, and reduces incomplete answers to text."""

    after = ("SummarizationMiddleware", "UploadsMiddleware", "ReminderMiddleware")

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        messages = with_answers(without_fragments(request.messages))
        return await handler(request if messages is request.messages else request.override(messages=messages))


def without_fragments(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return `messages` with incomplete answers reduced to their text; the same list if there are none.

    An incomplete answer at the end is removed: the model must write a new one, not continue mid-sentence.
    """
    if not any(is_ai(each) and ENDED in each.additional_kwargs for each in messages):
        return messages
    kept = [shown for each in messages if (shown := _as_text(each)) is not None]
    return kept[:-1] if kept and ENDED in kept[-1].additional_kwargs else kept


def _as_text(message: AnyMessage) -> AnyMessage | None:
    kwargs = message.additional_kwargs
    if ENDED not in kwargs:
        return message
    if NOTE in kwargs or not message.text.strip():
        return None
    return AIMessage(message.text, id=message.id, additional_kwargs={ENDED: kwargs[ENDED]})


def with_answers(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return `messages` with each call's result directly after it; the same list if nothing is missing."""
    if is_complete(messages):
        return messages
    results: defaultdict[str | None, deque[ToolMessage]] = defaultdict(deque)
    for message in messages:
        if isinstance(message, ToolMessage):
            results[message.tool_call_id].append(message)  # in order: some models reuse an id
    repaired: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        repaired.append(message)
        if isinstance(message, AIMessage):
            calls: list[ToolCall | InvalidToolCall] = [
                *message.tool_calls,
                *(call for call in message.invalid_tool_calls if call["id"]),
            ]
            repaired += [
                results[call["id"]].popleft() if results[call["id"]] else _placeholder(call) for call in calls
            ]
    return repaired


def is_complete(messages: Sequence[AnyMessage]) -> bool:
    """Return whether every call's result precedes the next message, and every result has a call."""
    if not may_have_results(messages):
        return not any(
            type(each) is AIMessage and (each.tool_calls or each.invalid_tool_calls) for each in messages
        )
    waiting: set[str | None] = set()
    for message in messages:
        if is_result(message):
            if message.tool_call_id not in waiting:
                return False
            waiting.discard(message.tool_call_id)
        else:
            if waiting:
                return False
            if is_ai(message) and (message.tool_calls or message.invalid_tool_calls):
                waiting = {call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]}
    return not waiting


def _placeholder(call: ToolCall | InvalidToolCall) -> ToolMessage:
    return ToolMessage(INTERRUPTED, tool_call_id=call["id"] or "", name=call["name"], status="error")
