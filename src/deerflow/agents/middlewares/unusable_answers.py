"""Handles answers that are empty, truncated, refused or malformed, so that every turn ends with text.

Models sometimes end a turn with only a thought, or with nothing: the model is called once more. A truncated
answer is kept and marked. A tool call in it may be truncated too, and a library that repairs broken JSON
would run it as if it were complete, so the last call is returned to the model as malformed. A safety stop
ends the turn: the calls of such an answer are dropped. Calls whose arguments are not valid JSON are answered
with an error, so that the model corrects them in the same turn: LangChain moves them to `invalid_tool_calls`,
and a turn with no other calls would end there. They are not repaired: truncated arguments must not run.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Self, cast

import orjson
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolCall
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware, error_result
from deerflow.agents.middlewares.reminder import reminder
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolRequest, ToolResult
from deerflow.config import SafetyDetector, Settings, resolve_use
from deerflow.domain import new_id
from deerflow.errors import ConfigError
from deerflow.models.tool_call_assembly import BROKEN_CALLS

AGAIN = (
    "Your last reply had no text and no tool call, so the user saw nothing. Give your answer now, as visible "
    "text, or make the call you meant to make."
)
NOTHING = "The model gave no answer, also when asked again. Ask again, or choose another model."


class EmptyAnswerMiddleware(ChainMiddleware):
    """Calls the model once more after an empty response."""

    switch = "empty_answer"
    before = ("SafetyStopMiddleware", "MalformedCallMiddleware", "ModelErrorMiddleware")

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        if not is_empty(response):
            return response
        second = await handler(request.override(messages=[*request.messages, reminder(AGAIN)]))
        if not is_empty(second):
            return second
        result = [_explained(message) for message in second.result]
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


def _explained(message: BaseMessage) -> BaseMessage:
    return stopped_answer(message, code="empty_answer", reason=NOTHING)


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

    switch = "cut_off"
    before = ("MalformedCallMiddleware",)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        if not any(is_cut(message) for message in response.result):
            return response
        return replace(response, result=[_with_cut_note(message) for message in response.result])


class SafetyStopMiddleware(ChainMiddleware):
    """Adds a note when a provider stopped an answer for safety, and drops its calls."""

    before = ("MalformedCallMiddleware",)

    def __init__(self, *, detectors: Sequence[Detector] = ()) -> None:
        super().__init__()
        self._detectors = detectors or (detect_safety_stop,)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        safety = settings.safety_finish_reason
        return (
            cls(detectors=[_detector(entry) for entry in safety.detectors or ()]) if safety.enabled else None
        )

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        return stopped_for_safety(response, self._detectors)


def _detector(entry: SafetyDetector) -> Detector:
    """Return a configured detector: its class has a method `detect`, or its instances are callable."""
    build = cast("Callable[..., object]", resolve_use(entry.use))
    try:
        made = build(**entry.config)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"safety_finish_reason.detectors: the config does not fit {entry.use}: {error}"
        ) from error
    detect = getattr(made, "detect", made)
    if not callable(detect):
        raise ConfigError(f"safety_finish_reason.detectors: {entry.use} has no method `detect`")
    return cast("Detector", detect)


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


def _with_cut_note(message: BaseMessage) -> BaseMessage:
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


MALFORMED = "malformed_arguments"
MAX_SHOWN_ARGUMENTS = 300
_LEVELS_AROUND = 20
"""An upper bound for the levels around the arguments, which count against orjson's limit of 254."""
WHAT_TO_DO = (
    "Error: the arguments were not valid JSON, or broke off; nothing was done. Send the call again with "
    "complete JSON. If the content is long, write it in several smaller calls."
)


class MalformedCallMiddleware(ChainMiddleware):
    """Restores malformed calls and answers them with an error result."""

    switch = "malformed_calls"

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        return with_malformed_calls(response) if any(map(has_malformed_calls, response.result)) else response

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        if set(request.tool_call["args"]) != {MALFORMED}:
            return await handler(request)
        return error_result(request.tool_call, WHAT_TO_DO)


def has_malformed_calls(message: BaseMessage) -> bool:
    """Return whether a message has calls whose arguments are not valid JSON."""
    return isinstance(message, AIMessage) and bool(
        message.invalid_tool_calls
        or BROKEN_CALLS in message.additional_kwargs
        or not all(_can_be_stored(call["args"]) for call in message.tool_calls)
    )


def _can_be_stored(args: object) -> bool:
    """Return whether the arguments can be stored: no number beyond 64 bits, no excessive nesting."""
    try:
        orjson.dumps(reduce(lambda inner, _: [inner], range(_LEVELS_AROUND), args))
    except TypeError:
        return False
    return True


def with_malformed_calls(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Return the response with its malformed calls among the others, marked by their only argument."""
    return replace(response, result=[_with_malformed_calls(message) for message in response.result])


def _with_malformed_calls(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage) or not has_malformed_calls(message):
        return message
    kept = dict(message.additional_kwargs)
    broken = kept.pop(BROKEN_CALLS, ())
    calls = [
        _malformed(call) if call["id"] in broken or not _can_be_stored(call["args"]) else call
        for call in message.tool_calls
    ]
    calls += map(_malformed, message.invalid_tool_calls)
    return message.model_copy(
        update={"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": kept}
    )


def _malformed(call: ToolCall | InvalidToolCall) -> ToolCall:
    raw = _shown_arguments(call["args"])
    return ToolCall(
        name=call["name"] or "unknown", args={MALFORMED: raw}, id=call["id"] or new_id(), type="tool_call"
    )


def _shown_arguments(args: object) -> str:
    try:
        raw = str(args or "")
    except (ValueError, RecursionError):  # more digits or levels than Python can format
        raw = ""
    return raw[:MAX_SHOWN_ARGUMENTS].encode(errors="replace").decode()


MAX_SHOWN_CALLS = 10
MAX_SHOWN_CHARS = 160


def stopped_answer(
    message: BaseMessage, *, code: str, reason: str, done: Sequence[tuple[str, str]] = ()
) -> BaseMessage:
    """Return a response without its tool calls that says why the turn ended and what was done.

    Args:
        code: The reason for programs, stored as `stop_reason`.
        done: Name and result of each call of the turn, oldest first.
    """
    if not isinstance(message, AIMessage):
        return message
    said = message.text.strip()
    content = "\n\n".join(part for part in (said, reason, what_was_done(done)) if part)
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    changes: dict[str, Any] = {
        "content": content,
        "tool_calls": [],
        "invalid_tool_calls": [],
        "additional_kwargs": {**kwargs, "stop_reason": code},
    }
    return message.model_copy(update=changes)


def what_was_done(done: Iterable[tuple[str, str]]) -> str:
    """Return a list of the distinct calls with the first line of their results; empty if there were none."""
    counted: dict[tuple[str, str], int] = {}
    for name, result in done:
        line = next((line.strip() for line in result.splitlines() if line.strip()), "(nothing)")
        key = (name, line[:MAX_SHOWN_CHARS])
        counted[key] = counted.get(key, 0) + 1
    lines = [
        f"- {name}{f' ({count} times)' if count > 1 else ''}: {line}"
        for (name, line), count in list(counted.items())[-MAX_SHOWN_CALLS:]
    ]
    return "\n".join(["What was done:", *lines]) if lines else ""
