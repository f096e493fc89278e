"""Tells an agent that a tool brings it nothing new, however it is called.

The loop guard looks for equal results; this one for similar ones: searches in other words that find the same
pages, logs that differ by a time stamp. Results are compared by their words. It only speaks, and the last
warning says to stop; whoever goes on meets the loop guard. Like that one it keeps nothing of its own.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.loop_guard import WRITERS
from deerflow.agents.middlewares.tags import reminder
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config.tools import ToolProgressSettings
from deerflow.memory.searching import words_of

MAX_COMPARED_CHARS = 20_000
WARNING = (
    "The last {count} results of {tool} say almost the same. Look at what you have before you call it again: "
    "change what you look for, use another tool, or answer."
)
LAST_WARNING = (
    "The last {count} results of {tool} say almost the same, and you were told before. Do not call {tool} "
    "again for this. Answer with what you have and say what could not be found."
)


@dataclass(frozen=True, slots=True)
class Stagnation:
    """A tool whose results resemble each other."""

    tool: str
    count: int
    is_last_warning: bool

    @property
    def text(self) -> str:
        """What the model is told."""
        return (LAST_WARNING if self.is_last_warning else WARNING).format(tool=self.tool, count=self.count)


class ToolProgressMiddleware(ChainMiddleware):
    """Speaks up when the results of a tool stop being new."""

    after = ("DanglingToolCallMiddleware",)

    def __init__(self, *, settings: ToolProgressSettings) -> None:
        super().__init__()
        self._settings = settings

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
    """Return what stagnates in the turn that `messages` end with; None when the last result was news."""
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
    """Return the results of the tool that was last used in this turn, newest first."""
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
    """Return how much of both sets of words is in both: 1 for equal ones, 0 for strangers."""
    first, second = frozenset(one), frozenset(other)
    together = len(first | second)
    return len(first & second) / together if together else 1.0
