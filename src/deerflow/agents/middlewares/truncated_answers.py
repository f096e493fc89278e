"""Handles answers that a provider ended early: at the length limit, or for safety.

A truncated answer is kept and marked as truncated. A tool call in it may be truncated too, and a library that
repairs broken JSON would run it as if it were complete, so the last call is returned to the model as
malformed. A safety stop ends the turn: the calls of such an answer are dropped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.early_stop import stopped_answer
from deerflow.agents.middlewares.malformed_calls import MALFORMED
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

Detector = Callable[[AIMessage], str | None]
"""Returns why a provider stopped an answer for safety; None if it did not."""

LENGTH_REASONS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
SAFETY_REASONS = frozenset(
    {
        "content_filter",
        "content_filtered",
        "refusal",
        "safety",
        "sensitive",
        "blocklist",
        "prohibited_content",
        "spii",
        "recitation",
        "guardrail_intervened",
    }
)
CUT_NOTE = "[The answer broke off at the model's output limit. Ask to go on from here.]"
SAFETY_NOTE = "The model's provider stopped this answer for safety ({reason})."


class CutOffMiddleware(ChainMiddleware):
    """Marks answers that reached the output limit and never runs a truncated call."""

    before = ("MalformedCallMiddleware",)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        if not any(is_cut(message) for message in response.result):
            return response
        return replace(response, result=[_noted(message) for message in response.result])


class SafetyStopMiddleware(ChainMiddleware):
    """Adds a note when a provider stopped an answer for safety, and drops its calls."""

    before = ("MalformedCallMiddleware",)
    after = ("EmptyAnswerMiddleware",)

    def __init__(self, *, detectors: Sequence[Detector] = ()) -> None:
        super().__init__()
        self._detectors = detectors or (detect_safety_stop,)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        return stopped_for_safety(response, self._detectors)


def finish_reason(message: BaseMessage) -> str:
    """Return the provider's finish reason in lower case; empty if there is none."""
    metadata = message.response_metadata
    for key in ("finish_reason", "stop_reason", "done_reason"):
        value = metadata.get(key)
        if isinstance(value, str):
            return value.lower()
    return ""


def is_cut(message: BaseMessage) -> bool:
    """Return whether an answer was truncated at the output limit."""
    return isinstance(message, AIMessage) and finish_reason(message) in LENGTH_REASONS


def detect_safety_stop(message: AIMessage) -> str | None:
    """Return the provider's finish reason if it stopped the answer for safety."""
    reason = finish_reason(message)
    return reason if reason in SAFETY_REASONS else None


def stopped_for_safety(response: ModelResponse[Any], detectors: Iterable[Detector]) -> ModelResponse[Any]:
    """Return the response with a note if a detector found a safety stop; otherwise unchanged."""
    for message in response.result:
        if isinstance(message, AIMessage):
            reason = next((found for detect in detectors if (found := detect(message))), None)
            if reason is not None:
                note = SAFETY_NOTE.format(reason=reason)
                result = [stopped_answer(one, code="safety", reason=note) for one in response.result]
                return replace(response, result=result)
    return response


def _noted(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage) or not is_cut(message):
        return message
    kwargs = {**message.additional_kwargs, "stop_reason": "model_length_capped"}
    if message.tool_calls:
        *whole, broken = message.tool_calls
        shown = str(broken["args"].get(MALFORMED, ""))
        calls = [*whole, {**broken, "args": {MALFORMED: shown}}]
        return message.model_copy(update={"tool_calls": calls, "additional_kwargs": kwargs})
    if not message.text.strip():
        return message.model_copy(update={"additional_kwargs": kwargs})
    content: Any = message.content
    if isinstance(content, str):
        content = f"{content}\n\n{CUT_NOTE}"
    else:
        content = [*content, {"type": "text", "text": f"\n\n{CUT_NOTE}"}]
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})
