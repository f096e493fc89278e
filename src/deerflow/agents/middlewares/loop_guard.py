"""Stops an agent that repeats itself, and warns one whose tool calls return nothing new.

A call counts as repeated when its name, its arguments and its result all occurred before in this turn. So
polling (the result changes), paging (the arguments change) and batch edits pass. The guard warns first; then
the model must answer without tools, and a response that still has tool calls is replaced by a summary of the
work done. Similar results (reworded searches that find the same pages, logs that differ by a timestamp) only
cause warnings. Both read the messages and have no state of their own: they decide the same after a restart.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import orjson
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.reminder import reminder
from deerflow.agents.middlewares.unusable_answers import stopped_answer
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import LoopDetectionSettings, Settings
from deerflow.config.tools import ToolProgressSettings
from deerflow.memory.searching import words_of

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
class FinishedCall:
    """One finished call: its arguments and its result."""

    name: str
    arguments: bytes
    result: str
    failed: bool


@dataclass(frozen=True, slots=True)
class LoopVerdict:
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

    def __init__(self, *, settings: LoopDetectionSettings) -> None:
        super().__init__()
        self._settings = settings

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        return cls(settings=settings.loop_detection) if settings.loop_detection.enabled else None

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        verdict = judge(request.state["messages"], self._settings)
        if verdict is None:
            return await handler(request)
        warned = request.override(messages=[*request.messages, reminder(verdict.text)])
        if verdict.action == "warn":
            return await handler(warned)
        response = await handler(warned.override(tools=[], tool_choice=None))
        return without_further_calls(response, request.state["messages"], verdict)


def judge(messages: Sequence[AnyMessage], settings: LoopDetectionSettings) -> LoopVerdict | None:
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
        return LoopVerdict("stop", *repeated)
    frequent = _without_new_results(steps, settings)
    if frequent is not None and frequent.action == "stop":
        return frequent
    if repeated[0] >= settings.warn_threshold:
        return LoopVerdict("warn", *repeated)
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


def steps_of_turn(messages: Sequence[AnyMessage]) -> list[tuple[FinishedCall, ...]]:
    """Return the finished calls since the last user message, one tuple per response."""
    steps: list[tuple[FinishedCall, ...]] = []
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


def _call(name: str, arguments: Mapping[str, Any], result: ToolMessage) -> FinishedCall:
    # The label may be worded differently each time; it does not change the call.
    meant = {key: value for key, value in arguments.items() if key != "description"}
    content = result.content if isinstance(result.content, str) else result.text
    key = orjson.dumps(meant, option=orjson.OPT_SORT_KEYS, default=repr)
    return FinishedCall(name, key, content, result.status == "error")


def _repeated(steps: Sequence[tuple[FinishedCall, ...]]) -> tuple[int, str]:
    """Return how often all calls of the last response were made, and the tool of the first."""
    if not steps or not steps[-1]:
        return 0, ""
    seen = Counter(call for step in steps for call in set(step))
    return min(seen[call] for call in steps[-1]), steps[-1][0].name


def _without_new_results(
    steps: Sequence[tuple[FinishedCall, ...]], settings: LoopDetectionSettings
) -> LoopVerdict | None:
    """Judge a tool that is called repeatedly, with whatever arguments, without new results."""
    name = steps[-1][0].name if steps[-1] else ""
    limits = settings.tool_freq_overrides.get(name)
    warn = limits.warn if limits else settings.tool_freq_warn
    stop = limits.hard_limit if limits else settings.tool_freq_hard_limit
    calls = [call for step in steps for call in step if call.name == name]
    if len(calls) < min(warn, stop):
        return None
    counted = [call for call in calls if call.failed or name not in WRITERS]
    repeats = len(counted) - len({call.result for call in counted})
    if repeats >= stop:
        return LoopVerdict("stop", repeats, name)
    return LoopVerdict("warn", repeats, name) if repeats >= warn else None


def without_further_calls(
    response: ModelResponse[Any], messages: Sequence[AnyMessage], verdict: LoopVerdict
) -> ModelResponse[Any]:
    """Return the last answer of a stopped turn: the model's text, or a summary if it called a tool again."""
    if not any(isinstance(message, AIMessage) and message.tool_calls for message in response.result):
        return response
    reason = f"I stopped because the same work was repeated {verdict.count} times with {verdict.tool}."
    done = [(call.name, call.result) for step in steps_of_turn(messages) for call in step]
    result = [stopped_answer(message, code="loop", reason=reason, done=done) for message in response.result]
    return replace(response, result=result)


MAX_COMPARED_CHARS = 20_000
STAGNATION_WARNING = (
    "The last {count} results of {tool} say almost the same. Look at what you have before you call it again: "
    "change what you look for, use another tool, or answer."
)
LAST_STAGNATION_WARNING = (
    "The last {count} results of {tool} say almost the same, and you were told before. Do not call {tool} "
    "again for this. Answer with what you have and say what could not be found."
)


@dataclass(frozen=True, slots=True)
class Stagnation:
    """A tool whose recent results are similar to each other."""

    tool: str
    count: int
    is_last_warning: bool

    @property
    def text(self) -> str:
        """The reminder for the model."""
        return (LAST_STAGNATION_WARNING if self.is_last_warning else STAGNATION_WARNING).format(
            tool=self.tool, count=self.count
        )


class ToolProgressMiddleware(ChainMiddleware):
    """Warns the agent when a tool's results are no longer new."""

    def __init__(self, *, settings: ToolProgressSettings) -> None:
        super().__init__()
        self._settings = settings

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        return cls(settings=settings.tool_progress) if settings.tool_progress.enabled else None

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        seen = assess(request.state["messages"], self._settings)
        if seen is None:
            return await handler(request)
        event = {"type": "tool_stagnation", "tool": seen.tool, "count": seen.count}
        request.runtime.context.publish({**event, "is_last_warning": seen.is_last_warning})
        if not self._settings.inject_assessment:
            return await handler(request)
        return await handler(request.override(messages=[*request.messages, reminder(seen.text)]))


def assess(messages: Sequence[AnyMessage], settings: ToolProgressSettings) -> Stagnation | None:
    """Return what stagnates in the last turn of `messages`; None if the last result was new."""
    results = _last_results(messages)
    if not results or len(results) < settings.stagnation_threshold:
        return None
    tool = results[0].name or ""
    if tool in WRITERS or tool in settings.exempt_tools:
        return None
    newest = _words(results[0])
    if len(newest) < settings.min_word_count_for_similarity:
        return None
    count = 1
    for older in results[1:]:
        if _similarity(newest, _words(older)) < settings.jaccard_similarity_threshold:
            break
        count += 1
    if count < settings.stagnation_threshold:
        return None
    warnings = count - settings.stagnation_threshold
    return Stagnation(tool, count, is_last_warning=warnings >= settings.warn_escalation_count)


def _last_results(messages: Sequence[AnyMessage]) -> list[ToolMessage]:
    """Return this turn's results of the tool that was used last, newest first."""
    if not messages or not isinstance(messages[-1], ToolMessage):
        return []
    found: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage) and message.name == messages[-1].name:
            found.append(message)
        elif isinstance(message, AIMessage) and not message.tool_calls:
            break
    return found


def _words(message: ToolMessage) -> frozenset[str]:
    return frozenset(words_of(message.text[:MAX_COMPARED_CHARS]))


def _similarity(one: Collection[str], other: Collection[str]) -> float:
    """Return the Jaccard similarity of two sets of words: 1 if equal, 0 if disjoint."""
    first, second = frozenset(one), frozenset(other)
    together = len(first | second)
    return len(first & second) / together if together else 1.0
