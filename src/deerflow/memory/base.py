"""The memory of a user: a few summaries and a list of facts; and the turns that were not learned from yet."""

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from deerflow.config import MemoryBackendSettings

VERSION = "1.0"
USER_SECTIONS = ("workContext", "personalContext", "topOfMind")
HISTORY_SECTIONS = ("recentMonths", "earlierContext", "longTermBackground")
SECTIONS = (*USER_SECTIONS, *HISTORY_SECTIONS)
CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")
DEFAULT_CATEGORY = "context"
DEFAULT_CONFIDENCE = 0.5
MAX_FACT_CHARS = 1000
MAX_SUMMARY_CHARS = 4000
MAX_CATEGORY_CHARS = 40
_UNWANTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]+")

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Scope:
    """Owner of a memory: a user, or one of the user's custom agents."""

    user_id: str
    agent_name: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """One remembered statement about the user."""

    id: str
    content: str
    category: str = DEFAULT_CATEGORY
    confidence: float = DEFAULT_CONFIDENCE
    created_at: str = ""
    source: str = "unknown"
    """The thread in which it was said, or `manual`."""
    valid_until: str = ""
    """When a newer fact replaced it; empty while it is valid."""
    replaced_by: str = ""
    """Id of that fact."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as clients see it."""
        data: dict[str, Any] = {
            "id": self.id,
            "content": self.content,
            "category": self.category,
            "confidence": self.confidence,
            "createdAt": self.created_at,
            "source": self.source,
        }
        if self.valid_until:
            data |= {"validUntil": self.valid_until, "replacedBy": self.replaced_by}
        return data


@dataclass(frozen=True, slots=True)
class MemorySection:
    """A summary of one aspect of the user."""

    summary: str = ""
    updated_at: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the section as clients see it."""
        return {"summary": self.summary, "updatedAt": self.updated_at}


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything remembered in one scope."""

    sections: Mapping[str, MemorySection] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    revision: int = 0
    """Number of changes."""
    last_updated: str = ""
    cleared_at: str = ""
    """When the user cleared the memory; earlier messages are no longer learned from."""
    replaced: tuple[Fact, ...] = ()
    """Facts that newer ones contradicted, oldest first; they are never recalled."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return not self.facts and not any(section.summary for section in self.sections.values())

    def section(self, name: str) -> MemorySection:
        """Return a section; an empty one if it was never written."""
        return self.sections.get(name, MemorySection())

    def to_dict(self) -> dict[str, Any]:
        """Return the memory as clients see it."""
        return {
            "version": VERSION,
            "revision": self.revision,
            "lastUpdated": self.last_updated,
            "user": {name: self.section(name).to_dict() for name in USER_SECTIONS},
            "history": {name: self.section(name).to_dict() for name in HISTORY_SECTIONS},
            "facts": [fact.to_dict() for fact in self.facts],
            **({"replacedFacts": [fact.to_dict() for fact in self.replaced]} if self.replaced else {}),
        }


def memory_of(data: Mapping[str, Any]) -> Memory:
    """Return the memory that `to_dict` encoded; malformed parts are ignored."""
    return Memory(
        sections=dict(_sections(data)),
        facts=_facts(data.get("facts")),
        replaced=_facts(data.get("replacedFacts")),
        revision=int(data.get("revision") or 0),
        last_updated=str(data.get("lastUpdated") or ""),
        cleared_at=str(data.get("clearedAt") or ""),
    )


def clean(text: str, limit: int) -> str:
    """Return a text as one line, without control characters, cut at `limit`."""
    return " ".join(_UNWANTED.sub(" ", text).split())[:limit].rstrip()


def new_fact_id() -> str:
    """Return a new fact id."""
    return f"fact_{secrets.token_hex(6)}"


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def timestamp(time: datetime) -> str:
    """Return a time as stored in memories; the strings sort chronologically."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _sections(data: Mapping[str, Any]) -> Iterator[tuple[str, MemorySection]]:
    for group, names in (("user", USER_SECTIONS), ("history", HISTORY_SECTIONS)):
        found = data.get(group)
        for name in names:
            entry = found.get(name) if isinstance(found, Mapping) else None
            if isinstance(entry, Mapping) and entry.get("summary"):
                yield name, MemorySection(str(entry["summary"]), str(entry.get("updatedAt") or ""))


def _facts(entries: object) -> tuple[Fact, ...]:
    return tuple(map(_fact, filter(_is_fact, entries if isinstance(entries, list) else ())))


def _is_fact(entry: object) -> bool:
    return isinstance(entry, Mapping) and bool(entry.get("id")) and bool(entry.get("content"))


def _fact(entry: Mapping[str, Any]) -> Fact:
    return Fact(
        id=str(entry["id"]),
        content=str(entry["content"]),
        category=str(entry.get("category") or DEFAULT_CATEGORY),
        confidence=float(entry.get("confidence", DEFAULT_CONFIDENCE)),
        created_at=str(entry.get("createdAt") or ""),
        source=str(entry.get("source") or "unknown"),
        valid_until=str(entry.get("validUntil") or ""),
        replaced_by=str(entry.get("replacedBy") or ""),
    )


MAX_SHOWN_CHARS = 1000
"""Of a longer message, only the start and the end are used."""
MAX_TURNS = 20
_UPLOADS = re.compile(
    r"<(uploaded_files|current_uploads|system-reminder|memory)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_GAP = " […] "

Ask = Callable[[str, str], Awaitable[str | None]]
"""Sends a prompt to a model, for a thread; returns its answer, None if no model gave one."""


@dataclass(frozen=True, slots=True)
class MemoryTurn:
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
    turns: tuple[MemoryTurn, ...]
    settings: MemoryBackendSettings
    ask: Ask | None
    """None without a model: then only explicit requests to remember are stored."""
    failures: int = 0

    @property
    def said(self) -> Iterable[str]:
        """All messages of the user."""
        return [text for turn in self.turns for text in turn.said]


def own_words(text: str) -> str:
    """Return a user's text without the blocks that clients prepend, such as lists of uploads."""
    return _UPLOADS.sub("", text).strip()


def shortened(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return the start and the end of a long text."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}{_GAP}{text[-half:]}"
