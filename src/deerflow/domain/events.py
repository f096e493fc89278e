"""A stream event: one entry of a run's event log."""

from dataclasses import dataclass

END = "end"
"""The kind of the last event of every run."""

_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One numbered event; `data` is JSON, ready to be sent."""

    seq: int
    unix_ms: int
    kind: str
    """The SSE event name: `metadata`, `values`, `messages`, `updates`, `custom`, `error`, `end`…"""
    data: bytes

    @property
    def id(self) -> str:
        return f"{self.unix_ms}-{self.seq}"


def seq_of(event_id: str | None) -> int:
    """Return the sequence number in `Last-Event-ID`: -1 (replay all) when absent, `-1` or unparsable."""
    if not event_id:
        return -1
    _, _, tail = event_id.rpartition("-")
    return -1 if event_id.startswith("-") else number_in(tail, default=-1)


def number_in(text: str, *, default: int) -> int:
    """Return the number that a client sent; `default` for anything else or beyond 64 bits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else default
