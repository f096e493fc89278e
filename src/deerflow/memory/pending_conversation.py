"""Turns to learn from: the user's messages and the final answer, without external content."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from deerflow.config import MemoryBackendSettings
from deerflow.memory.base import Scope

MAX_SHOWN_CHARS = 1000
"""Of a longer message, only the start and the end are used."""
MAX_EXCHANGES = 20
_UPLOADS = re.compile(
    r"<(uploaded_files|current_uploads|system-reminder|memory)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_GAP = " […] "

Ask = Callable[[str, str], Awaitable[str | None]]
"""Sends a prompt to a model, for a thread; returns its answer, None if no model gave one."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn: the user's messages and the answer."""

    said: tuple[str, ...]
    answer: str
    """Empty where it may repeat external content."""
    at: datetime


@dataclass(frozen=True, slots=True)
class PendingConversation:
    """The turns of one thread that were not learned from yet."""

    scope: Scope
    thread_id: str
    exchanges: tuple[Exchange, ...]
    settings: MemoryBackendSettings
    ask: Ask | None
    """None without a model: then only explicit requests to remember are stored."""
    failures: int = 0

    @property
    def said(self) -> Iterable[str]:
        """All messages of the user."""
        return [text for exchange in self.exchanges for text in exchange.said]


def own_words(text: str) -> str:
    """Return a user's text without the blocks that clients prepend, such as lists of uploads."""
    return _UPLOADS.sub("", text).strip()


def shortened(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return the start and the end of a long text."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}{_GAP}{text[-half:]}"
