"""What is handed over of a turn: the user's words and the final answer, nothing that came from outside."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from deerflow.config import MemoryBackendSettings
from deerflow.memory.base import Scope

MAX_SHOWN_CHARS = 1000
"""Of a longer message, the start and the end are read."""
MAX_EXCHANGES = 20
_UPLOADS = re.compile(
    r"<(uploaded_files|current_uploads|system-reminder|memory)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_GAP = " […] "

Ask = Callable[[str, str], Awaitable[str | None]]
"""Puts a prompt to a model, for a thread; returns its words, None where no model gave any."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn: what the user said, and the answer."""

    said: tuple[str, ...]
    answer: str
    """Empty where it may repeat what came from outside."""
    at: datetime


@dataclass(frozen=True, slots=True)
class PendingConversation:
    """What was said in one thread since it was learnt from."""

    scope: Scope
    thread_id: str
    exchanges: tuple[Exchange, ...]
    settings: MemoryBackendSettings
    ask: Ask | None
    """None where no model can be asked: then only what the user explicitly asks to remember is kept."""
    failures: int = 0

    @property
    def said(self) -> Iterable[str]:
        """All words of the user."""
        return [text for exchange in self.exchanges for text in exchange.said]


def own_words(text: str) -> str:
    """Return what a user wrote without the blocks that clients put before it, such as lists of uploads."""
    return _UPLOADS.sub("", text).strip()


def shortened(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return the start and the end of a long text."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}{_GAP}{text[-half:]}"
