"""What clients asked for and saw, kept for the checker: nothing here is taken from inside the servers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.sse import Frame

TERMINAL = frozenset({"success", "error", "timeout", "interrupted"})


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A run that a gateway said it has."""

    run_id: str
    thread_id: str
    tag: str
    """What tells this run's words and effects from all others'."""
    strategy: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a gateway said of a run."""

    run_id: str
    gateway: str
    status: str
    attempt: int
    stop_reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A wish to stop that a gateway took."""

    run_id: str
    action: str


@dataclass(slots=True)
class Reading:
    """What one reader got of a run, over all of its connections."""

    run_id: str
    frames: list[Frame] = field(default_factory=list)
    connections: int = 0
    has_ended: bool = False


@dataclass(slots=True)
class History:
    """Everything that the clients of one trial saw, in the order in which they saw it."""

    runs: list[Acknowledged] = field(default_factory=list)
    refused: int = 0
    """Runs that a busy thread did not take."""
    answers: list[Answer] = field(default_factory=list)
    cancels: list[Cancelled] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    oddities: Counter[str] = field(default_factory=Counter)
    """Answers and failures that a client has to live with, by what they were."""


@dataclass(frozen=True, slots=True)
class ThreadAfter:
    """A thread when everything is over."""

    thread_id: str
    status: str
    runs: Sequence[str]
    """The ids of its runs, as it lists them."""
    messages: Sequence[Mapping[str, Any]]
    parents: Sequence[tuple[str, str | None]]
    """Its checkpoints, each with the one it was made from."""
    effects: Sequence[str]
    """What its tools left behind, a line each."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What the healed cluster says, asked through every gateway."""

    answers: Mapping[str, Sequence[Answer]]
    """By run: each gateway's, asked twice."""
    logs: Mapping[str, Sequence[Sequence[Frame]]]
    """By run: the whole log, from each gateway."""
    threads: Mapping[str, ThreadAfter]
    orphans: Sequence[str]
    """Processes that outlived what they belonged to."""
