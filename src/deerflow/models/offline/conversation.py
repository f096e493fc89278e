"""What the offline model reads from the messages (question, files, steps so far), and what it replies.

The model keeps nothing between calls, so everything it knows is found here again each time.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

DEFAULT_LIMIT = 3
"""Sub-agents in one batch when the prompt names no number."""

_LIMIT = re.compile(r"<subagent_system\b[^>]*\blimit=[\"']?(\d+)")
_LEADING_BLOCK = re.compile(r"\s*<([a-zA-Z][\w-]*)(?:\s[^>]*)?>.*?</\1>\s*", re.S)
_FRAME = re.compile(r"\A<tool-result>\n(.*)\n</tool-result>\Z", re.S)
_UPLOADS = re.compile(r"<(uploaded_files|current_uploads)\b[^>]*>(.*?)</\1>", re.S)
_UPLOAD_LINE = re.compile(
    r"^\s*(?:[-*]\s+)?(?:Path:\s*)?(/mnt/.+?)(?:\s+\([^()]*\)(?:, its text as Markdown: .+)?)?\s*$", re.M
)
KEPT_OF_RUN = 100
_LONG_RUN = re.compile(r"[A-Za-z0-9_\-./+=~*#]{200,}|\w{300,}")
"""A line of dashes, a key, a file in base64: no words, and looking for words in it takes for ever."""
_INTERRUPTED = re.compile(r"\binterrupted\b.*\bno result\b", re.I)


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call of this turn with its result."""

    name: str
    args: dict[str, Any]
    result: str
    failed: bool

    def argument(self, name: str) -> str:
        value = self.args.get(name)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user said and what was done for it."""

    question: str
    uploads: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of a thread, the tools at hand, and how many sub-agents may work at once."""

    turns: tuple[Turn, ...]
    tools: frozenset[str]
    limit: int = DEFAULT_LIMIT
    unusable_keys: tuple[tuple[str, str, str], ...] = ()
    """Keys that are set but cannot be used: variable, provider, and the command that installs the package."""

    @property
    def current(self) -> Turn:
        return self.turns[-1]

    def steps(self, name: str) -> list[Step]:
        """Return this turn's finished calls of one tool."""
        return [step for step in self.current.steps if step.name == name]


def read_conversation(messages: Sequence[BaseMessage], *, tools: Iterable[str]) -> Conversation:
    """Return what the messages tell."""
    results = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    turns: list[Turn] = []
    steps: list[Step] = []
    question, uploads = "", tuple[str, ...]()
    for message in messages:
        if isinstance(message, HumanMessage) and _is_turn(message):
            if question or uploads:
                turns.append(Turn(question, uploads, tuple(steps)))
            question, uploads, steps = _question(message.text), _uploads(message.text), []
        elif isinstance(message, AIMessage):
            steps += [
                _step(call["name"], call["args"], results[call["id"]]) for call in _answered(message, results)
            ]
    turns.append(Turn(question, uploads, tuple(steps)))
    return Conversation(tuple(turns), frozenset(tools), _limit(messages))


def _answered(message: AIMessage, results: dict[str, ToolMessage]) -> list[Any]:
    """Return the calls with a result; one that was interrupted counts as not made."""
    return [
        call
        for call in message.tool_calls
        if call["id"] in results and not _INTERRUPTED.search(results[call["id"]].text[:220])
    ]


def _step(name: str, args: dict[str, Any], result: ToolMessage) -> Step:
    text = _FRAME.sub(r"\1", result.text)  # the harness frames what came from outside
    return Step(name, args, text, result.status == "error")


def _is_turn(message: HumanMessage) -> bool:
    """Say whether a person wrote this: the harness adds reminders as human messages of its own."""
    if message.name or message.additional_kwargs.get("hide_from_ui"):
        return False
    return bool(_question(message.text) or _uploads(message.text))


def _question(text: str) -> str:
    while block := _LEADING_BLOCK.match(text):
        text = text[block.end() :]
    return _LONG_RUN.sub(lambda run: run[0][:KEPT_OF_RUN], text).strip()


def _uploads(text: str) -> tuple[str, ...]:
    blocks = "\n".join(match.group(2) for match in _UPLOADS.finditer(text))
    return tuple(dict.fromkeys(match.group(1) for match in _UPLOAD_LINE.finditer(blocks)))


def _limit(messages: Sequence[BaseMessage]) -> int:
    for message in messages:
        if isinstance(message, SystemMessage) and (found := _LIMIT.search(message.text)):
            return max(1, int(found.group(1)))
    return DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class OfflineCall:
    """One tool call to make."""

    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model."""

    text: str = ""
    calls: tuple[OfflineCall, ...] = ()
