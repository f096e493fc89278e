"""Stops an agent that repeats itself.

A call counts as repeated when its name, its arguments and its result all occurred before in this turn. So
polling (the result changes), paging (the arguments change) and batch edits pass. The guard reads the messages
and has no state of its own: it decides the same after a restart. It warns first; then the model must answer
without tools, and a response that still has tool calls is replaced by a summary of the work done.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.early_stop import stopped_answer
from deerflow.agents.middlewares.tags import reminder
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import LoopDetectionSettings

WRITERS = frozenset({"write_file", "str_replace", "edit_files", "present_files", "write_todos", "task"})
"""Tools whose short confirmations do not show whether they achieved anything new."""
WARNING = (
    "You have made the same call {count} times and got the same result each time{what}. Making it again will "
    "not change anything. Use what you have, try something different, or tell the user what is in the way."
)
STOP = (
    "You are going round in circles{what}, so tools are off for the rest of this turn. Answer now: say what "
    "was done, what was found, and what is missing."
)


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call: its arguments and its result."""

    name: str
    arguments: bytes
    result: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's decision about a turn."""

    action: Literal["warn", "stop"]
    count: int
    tool: str

    @property
    def text(self) -> str:
        """The reminder for the model."""
        words = STOP if self.action == "stop" else WARNING
        return words.format(count=self.count, what=f" with {self.tool}")


class LoopDetectionMiddleware(ChainMiddleware):
    """Warns an agent that repeats itself, then forces an answer without tools."""

    after = ("ToolOfferMiddleware", "TodoMiddleware", "DanglingToolCallMiddleware")

    def __init__(self, *, settings: LoopDetectionSettings) -> None:
        super().__init__()
        self._settings = settings

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        verdict = judge(request.state["messages"], self._settings)
        if verdict is None:
            return await handler(request)
        told = request.override(messages=[*request.messages, reminder(verdict.text)])
        if verdict.action == "warn":
            return await handler(told)
        response = await handler(told.override(tools=[], tool_choice=None))
        return without_further_calls(response, request.state["messages"], verdict)


def judge(messages: Sequence[AnyMessage], settings: LoopDetectionSettings) -> Verdict | None:
    """Return what to do about the last turn of `messages`; None if it makes progress."""
    if not messages or not isinstance(messages[-1], ToolMessage):
        return None
    if not _may_repeat(messages, settings):
        return None
    steps = steps_of_turn(messages)
    if not steps:
        return None  # the messages with these results' calls were removed
    repeated = _repeated(steps[-settings.window_size :])
    if repeated[0] >= settings.hard_limit:
        return Verdict("stop", *repeated)
    frequent = _fruitless(steps, settings)
    if frequent is not None and frequent.action == "stop":
        return frequent
    if repeated[0] >= settings.warn_threshold:
        return Verdict("warn", *repeated)
    return frequent


def _may_repeat(messages: Sequence[AnyMessage], settings: LoopDetectionSettings) -> bool:
    """Return whether the full check is needed; a cheap test that is mostly negative."""
    last, same, calls = messages[-1].content, 0, 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage):
            calls += 1
            same += message.content == last
    overridden = [limit.warn for limit in settings.tool_freq_overrides.values()]
    return same >= settings.warn_threshold or calls > min([settings.tool_freq_warn, *overridden])


def steps_of_turn(messages: Sequence[AnyMessage]) -> list[tuple[Call, ...]]:
    """Return the finished calls since the last user message, one tuple per response."""
    steps: list[tuple[Call, ...]] = []
    results: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message
        elif isinstance(message, AIMessage) and message.tool_calls:
            calls = [
                _call(call["name"], call["args"], results[call["id"]])
                for call in message.tool_calls
                if call["id"] in results
            ]
            steps.append(tuple(calls))
    return steps[::-1]


def _call(name: str, arguments: Mapping[str, Any], result: ToolMessage) -> Call:
    # The label may be worded differently each time; it does not change the call.
    meant = {key: value for key, value in arguments.items() if key != "description"}
    content = result.content if isinstance(result.content, str) else result.text
    key = orjson.dumps(meant, option=orjson.OPT_SORT_KEYS, default=repr)
    return Call(name, key, content, result.status == "error")


def _repeated(steps: Sequence[tuple[Call, ...]]) -> tuple[int, str]:
    """Return how often all calls of the last response were made, and the tool of the first."""
    if not steps or not steps[-1]:
        return 0, ""
    seen = Counter(call for step in steps for call in set(step))
    return min(seen[call] for call in steps[-1]), steps[-1][0].name


def _fruitless(steps: Sequence[tuple[Call, ...]], settings: LoopDetectionSettings) -> Verdict | None:
    """Judge a tool that is called repeatedly, with whatever arguments, without new results."""
    name = steps[-1][0].name if steps[-1] else ""
    limits = settings.tool_freq_overrides.get(name)
    warn = limits.warn if limits else settings.tool_freq_warn
    stop = limits.hard_limit if limits else settings.tool_freq_hard_limit
    calls = [call for step in steps for call in step if call.name == name]
    if len(calls) < min(warn, stop):
        return None
    counted = [call for call in calls if call.failed or name not in WRITERS]
    fruitless = len(counted) - len({call.result for call in counted})
    if fruitless >= stop:
        return Verdict("stop", fruitless, name)
    return Verdict("warn", fruitless, name) if fruitless >= warn else None


def without_further_calls(
    response: ModelResponse[Any], messages: Sequence[AnyMessage], verdict: Verdict
) -> ModelResponse[Any]:
    """Return the last answer of a stopped turn: the model's text, or a summary if it called a tool again."""
    if not any(isinstance(message, AIMessage) and message.tool_calls for message in response.result):
        return response
    reason = f"I stopped because the same work was repeated {verdict.count} times with {verdict.tool}."
    done = [(call.name, call.result) for step in steps_of_turn(messages) for call in step]
    result = [stopped_answer(message, code="loop", reason=reason, done=done) for message in response.result]
    return replace(response, result=result)
