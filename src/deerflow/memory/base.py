"""The memory of a user: a few summaries and a list of facts."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """Return the fact as clients see it."""
        return {
            "id": self.id,
            "content": self.content,
            "category": self.category,
            "confidence": self.confidence,
            "createdAt": self.created_at,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class Section:
    """A summary of one aspect of the user."""

    summary: str = ""
    updated_at: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the section as clients see it."""
        return {"summary": self.summary, "updatedAt": self.updated_at}


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything remembered in one scope."""

    sections: Mapping[str, Section] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    revision: int = 0
    """Number of changes."""
    last_updated: str = ""
    cleared_at: str = ""
    """When the user cleared the memory; earlier messages are no longer learned from."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return not self.facts and not any(section.summary for section in self.sections.values())

    def section(self, name: str) -> Section:
        """Return a section; an empty one if it was never written."""
        return self.sections.get(name, Section())

    def to_dict(self) -> dict[str, Any]:
        """Return the memory as clients see it."""
        return {
            "version": VERSION,
            "revision": self.revision,
            "lastUpdated": self.last_updated,
            "user": {name: self.section(name).to_dict() for name in USER_SECTIONS},
            "history": {name: self.section(name).to_dict() for name in HISTORY_SECTIONS},
            "facts": [fact.to_dict() for fact in self.facts],
        }


def memory_of(data: Mapping[str, Any]) -> Memory:
    """Return the memory that `to_dict` encoded; malformed parts are ignored."""
    facts = data.get("facts")
    return Memory(
        sections=dict(_sections(data)),
        facts=tuple(map(_fact, filter(_is_fact, facts if isinstance(facts, list) else ()))),
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


def stamp(time: datetime) -> str:
    """Return a time as stored in memories; the strings sort chronologically."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _sections(data: Mapping[str, Any]) -> Iterator[tuple[str, Section]]:
    for group, names in (("user", USER_SECTIONS), ("history", HISTORY_SECTIONS)):
        found = data.get(group)
        for name in names:
            entry = found.get(name) if isinstance(found, Mapping) else None
            if isinstance(entry, Mapping) and entry.get("summary"):
                yield name, Section(str(entry["summary"]), str(entry.get("updatedAt") or ""))


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
    )
