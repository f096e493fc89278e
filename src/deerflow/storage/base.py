"""What is kept of threads, runs and events, whichever database keeps it.

An event body is JSON in which repeated pieces are replaced by references to *fragments*: the byte
0x01, a number or a range `a-b`, and 0x01 again (raw control characters cannot occur in JSON). A
range stands for its fragments joined by commas. So a thread's messages are stored once, however
often `values` events repeat them.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.domain import (
    Assistant,
    CancelAction,
    RunRecord,
    RunRequest,
    RunStatus,
    Thread,
    ThreadStatus,
    TokenUse,
)
from deerflow.storage.owners import OwnerLock
from deerflow.storage.signals import Signals

SortKey = Literal["created_at", "updated_at", "thread_id", "status"]

FENCE = "__deerflow_fence__"
"""The key of a graph's `configurable` under which its checkpoints learn whose attempt writes them."""


def fence(run_id: str, attempt: int) -> dict[str, tuple[str, int]]:
    """Return what to add to `configurable` so that checkpoints of a stale attempt are refused."""
    return {FENCE: (run_id, attempt)}


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads a search returns."""

    user_id: str | None
    """Whose threads; None: everybody's."""
    metadata: Mapping[str, Any] | None = None
    """Only threads whose metadata has all of these top-level keys with equal values."""
    status: ThreadStatus | None = None
    ids: Sequence[str] | None = None
    limit: int = 100
    offset: int = 0
    sort_by: SortKey = "updated_at"
    descending: bool = True


@dataclass(frozen=True, slots=True)
class AssistantQuery:
    """Which assistants a search returns."""

    user_id: str
    graph_id: str | None = None
    name: str | None = None
    """A part of the name, in any case."""
    metadata: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] = "created_at"
    descending: bool = True


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event as the log keeps it."""

    seq: int
    unix_ms: int
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Events of one run that are stored in one transaction, with the fragments they are the first to use."""

    run_id: str
    thread_id: str
    attempt: int
    entries: Sequence[LogEntry]
    fragments: Sequence[tuple[int, bytes]] = ()


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    status: RunStatus
    thread_status: ThreadStatus = ThreadStatus.IDLE
    """What the thread is after it; a run that waits for an answer leaves it interrupted."""
    error: str | None = None
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    message_count: int = 0
    title: str | None = None
    """The title that the run gave its thread."""
    rolls_back: bool = False
    """The thread's checkpoints, title and status become what they were before the run."""


class ThreadStore(ABC):
    """Threads as lists show them."""

    @abstractmethod
    async def create(self, thread_id: str, user_id: str, metadata: Mapping[str, Any]) -> Thread:
        """Return the thread, made now or before; another user's id raises `ConflictError`."""

    @abstractmethod
    async def get(self, thread_id: str, user_id: str | None = None) -> Thread:
        """Return a thread; `NotFoundError` when it is not there or belongs to another user."""

    @abstractmethod
    async def search(self, query: ThreadQuery) -> list[Thread]: ...

    @abstractmethod
    async def count(self, query: ThreadQuery) -> int: ...

    @abstractmethod
    async def update(
        self,
        thread_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        status: ThreadStatus | None = None,
        touch: bool = True,
    ) -> Thread:
        """Merge metadata, set title and status; `touch` moves `updated_at`."""

    @abstractmethod
    async def delete(self, thread_id: str) -> None:
        """Delete the thread with its runs, events, fragments and checkpoints (sub-threads too)."""


class RunStore(ABC):
    """Runs and who owns them. Every write of a worker carries its attempt and fails when it is stale."""

    @abstractmethod
    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        """Admit a run in one transaction: make the thread if needed, mark it busy, store the row.

        With an `owner` a run whose thread is free is claimed at once: it comes back `running` with
        attempt 1. Otherwise it comes back `pending` and waits for its turn. A thread with runs in flight
        answers by strategy:

        - `reject` raises `ThreadBusyError`;
        - `enqueue` puts the run behind them;
        - `interrupt` and `rollback` leave the running one that wish, end those that only wait, and put
          the run behind.

        A run with `after_seconds` is in nobody's way before its time. An `idempotency_key` that the user
        sent before brings back the run of that time, whose id is then another one than `run_id`.
        """

    @abstractmethod
    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord: ...

    @abstractmethod
    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        """Return a thread's runs, newest first."""

    @abstractmethod
    async def active(self) -> list[RunRecord]:
        """Return all pending and running runs, oldest first."""

    @abstractmethod
    async def claim(self, run_id: str, *, owner: str, attempt: int) -> RunRecord:
        """Take up a run that is still at `attempt`: sets owner, `running` and `attempt + 1`.

        `StaleAttemptError` when somebody else was quicker, another run of the thread is running, or the
        run has ended. The first claim remembers what a rollback puts back.
        """

    @abstractmethod
    async def claim_next(self, thread_id: str, *, owner: str) -> RunRecord | None:
        """Take up the run whose turn it is in a thread; None when there is none or one is running."""

    @abstractmethod
    async def release(self, run_id: str, *, attempt: int) -> None:
        """Give a running run back, so that anybody may take it up; a stale attempt changes nothing."""

    @abstractmethod
    async def settle(
        self, run_id: str, *, attempt: int, end: RunEnd, last: LogBatch | None = None
    ) -> RunRecord:
        """Write the final state and free the thread; `StaleAttemptError` when not the owner any more.

        `last` are the run's last events, stored in the same transaction, so that a log ends if and
        only if its run has ended. A run that is to be rolled back ends in no other way:
        `RollbackWantedError`.
        """

    @abstractmethod
    async def heartbeat(self, owner: str) -> dict[str, int]:
        """Move the leases of the owner's runs on, by the database's clock; return the attempts by run."""

    @abstractmethod
    async def orphans(self, lock: OwnerLock, *, limit: int | None = None) -> list[RunRecord]:
        """Return the runs in flight that nobody works on, oldest first, up to `limit`.

        That is: a waiting run whose turn it is, or a running one without owner, with an owner of this
        machine whose lock can be taken, or with one whose lease ran out. On SQLite, where all owners
        are on this machine as a rule, the lease of one that has its lock does not count.
        """

    @abstractmethod
    async def request_cancel(self, run_id: str, action: CancelAction) -> RunRecord:
        """Leave a wish to stop for the owner, wherever it is; a run that only waits ends at once."""

    @abstractmethod
    async def cancel_requests(self, owner: str) -> dict[str, CancelAction]:
        """Return the wishes to stop for the running runs of `owner`."""

    @abstractmethod
    async def delete(self, run_id: str) -> None:
        """Delete a run that has ended, with its events."""


class EffectState(StrEnum):
    """What is known of a tool call of an earlier attempt."""

    STARTED = "started"
    FINISHED = "finished"


class EffectLog(ABC):
    """Which tool calls of runs in flight were begun and done."""

    @abstractmethod
    async def start(self, run_id: str, *, attempt: int, call: bytes) -> EffectState | None:
        """Note that a call begins; return what an earlier attempt left of the same call.

        `StaleAttemptError` when another attempt owns the run. A second start in the same attempt knows
        nothing of an earlier one: what is asked for again after an answer is meant.
        """

    @abstractmethod
    def finish(self, run_id: str, *, attempt: int, call: bytes) -> None:
        """Note that a call is done, without waiting for it to be stored."""


class EventLog(ABC):
    """The durable log of every run."""

    @abstractmethod
    async def append(self, batch: LogBatch, *, is_urgent: bool = False) -> None:
        """Store a batch; `StaleAttemptError` when another attempt owns the run.

        One that is not urgent may wait for others to be stored with, for a moment that nobody notices.

        A batch that was stored before, wholly or in part, is stored once; a number that is taken by
        something else is a `ConflictError`.
        """

    @abstractmethod
    async def read(self, run_id: str, *, after_seq: int = -1, limit: int = 1000) -> list[LogEntry]:
        """Return stored events in order, from the first after `after_seq`."""

    @abstractmethod
    async def last_seq(self, run_id: str) -> int:
        """Return the highest stored number, -1 when there is none."""

    @abstractmethod
    async def newest_fragment(self, thread_id: str) -> int:
        """Return the highest number of the thread's fragments, -1 when there is none."""

    @abstractmethod
    async def digests(self, thread_id: str) -> dict[bytes, int]:
        """Return the thread's fragment numbers by their 16-byte BLAKE2b digest."""

    @abstractmethod
    async def fragments(self, thread_id: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the bytes of these fragments."""


class AssistantStore(ABC):
    """Assistants in all their versions."""

    @abstractmethod
    async def create(self, assistant: Assistant) -> Assistant:
        """Keep a new assistant; `ConflictError` when its id is taken."""

    @abstractmethod
    async def get(self, assistant_id: str, user_id: str) -> Assistant:
        """Return an assistant of this user in its latest version."""

    @abstractmethod
    async def add_version(self, assistant: Assistant) -> Assistant:
        """Keep a changed assistant as its next version, which becomes the latest."""

    @abstractmethod
    async def versions(self, assistant_id: str, user_id: str, *, limit: int, offset: int) -> list[Assistant]:
        """Return the versions of an assistant, newest first."""

    @abstractmethod
    async def set_latest(self, assistant_id: str, user_id: str, version: int) -> Assistant:
        """Make an older version the latest."""

    @abstractmethod
    async def search(self, query: AssistantQuery) -> list[Assistant]: ...

    @abstractmethod
    async def count(self, query: AssistantQuery) -> int: ...

    @abstractmethod
    async def delete(self, assistant_id: str, user_id: str) -> None: ...


class Jobs(ABC):
    """Tells the processes that share a database of runs that wait for somebody to take them up."""

    @abstractmethod
    async def follow(self, take: Callable[[str], Awaitable[None]], *, concurrency: int) -> None:
        """Call `take` with the id of each such run, up to `concurrency` at a time, until cancelled.

        A call lasts as long as the run occupies this process. Each run is told to one process, mostly; one
        that is told twice or not at all is what `RunStore.orphans` is for.
        """

    @abstractmethod
    async def workers(self) -> int:
        """Return how many processes listen at the moment."""


class Retention(ABC):
    """Deletes what is kept longer than the operator wants."""

    @abstractmethod
    async def drop_events(self, *, ended_before: datetime, limit: int) -> int:
        """Delete the events of up to `limit` runs that ended before; return of how many there were some."""

    @abstractmethod
    async def drop_checkpoints(self, thread_id: str, *, keep: int) -> int:
        """Delete all but the newest `keep` checkpoints of a thread and of each of its sub-threads.

        What those are rebuilt from stays. Returns how many went; none while a run of the thread is in flight.
        """


@dataclass(frozen=True, slots=True)
class Storage:
    """All stores of one database."""

    threads: ThreadStore
    runs: RunStore
    events: EventLog
    effects: EffectLog
    assistants: AssistantStore
    checkpoints: BaseCheckpointSaver[Any]
    store: BaseStore
    signals: Signals
    retention: Retention
    jobs: Jobs | None = None
    """None where one process has the database for itself."""
