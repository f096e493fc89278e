"""Find what a user explicitly asks to remember, without a model.

With only the offline model nothing else is learned: it cannot judge what matters.
"""

import re
from collections.abc import Iterator
from datetime import datetime

from deerflow.memory.base import MAX_FACT_CHARS, Fact, clean, new_fact_id, stamp
from deerflow.memory.changes import MemoryUpdate
from deerflow.memory.extraction import Redact, is_fit
from deerflow.memory.pending_conversation import PendingConversation

CERTAINTY = 0.9
MAX_WISHES = 10
_WISH = re.compile(
    r"(?:^|(?<=[.!?。！？\n]))\s*(?:please,?\s+|bitte\s+|请)?"
    r"(?:(?:remember|keep in mind|don't forget|note)(?:\s+that\b|\s*:|,)"
    r"|merk(?:e)?\s+dir\s*(?:,\s*dass\b|:|,)"
    r"|(?:记住|記住)[:：,，]?)"
    r"\s*(?P<wish>[^.!?。！？\n]{3,300})(?P<end>[.!?。！？\n]|$)",
    re.IGNORECASE,
)


def wishes_in(talk: PendingConversation, *, now: datetime, redact: Redact) -> MemoryUpdate:
    """Return the facts that the user asked to remember."""
    facts = [
        Fact(new_fact_id(), content, confidence=CERTAINTY, created_at=stamp(now), source=talk.thread_id)
        for text in talk.said
        for content in _wishes(text)
        if is_fit(content, redact)
    ]
    return MemoryUpdate(new=tuple(facts[:MAX_WISHES]))


def _wishes(text: str) -> Iterator[str]:
    for found in _WISH.finditer(text):
        if found["end"] not in ("?", "？"):
            yield clean(found["wish"], MAX_FACT_CHARS)
