"""Warns an agent whose calls of a tool return nothing new, whatever the arguments.

The loop guard detects equal results; this middleware detects similar ones: reworded searches that find the
same pages, logs that differ by a timestamp. Results are compared by their sets of words. It only warns, and
the last warning says to stop; after that the loop guard applies. Like the loop guard it has no state.
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
    """A tool whose recent results are similar to each other."""

    tool: str
    count: int
    is_last_warning: bool

    @property
    def text(self) -> str:
        """The reminder for the model."""
        return (LAST_WARNING if self.is_last_warning else WARNING).format(tool=self.tool, count=self.count)


class ToolProgressMiddleware(ChainMiddleware):
    """Warns the agent when a tool's results are no longer new."""

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
