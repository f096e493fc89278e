"""Runs, who owns them, and how they end."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, ThreadStatus, TokenUse
from deerflow.storage.base.events import LogBatch
from deerflow.storage.owners import OwnerLock


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    status: RunStatus
    thread_status: ThreadStatus = ThreadStatus.IDLE
    """What the thread is after it; a run that waits for an answer leaves it interrupted."""
    error: str | None = None
    error_in_chinese: str | None = None
    """The error for people who write Chinese, where there are words for it."""
    error_reason: str | None = None
    """The kind of a model's failure in a word, such as `rate_limited`."""
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    message_count: int = 0
    title: str | None = None
    """The title that the run gave its thread."""
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    """The questions that the thread waits with, by the graph's task."""
    asks: bool = False
    """The run's answer is a question to the person."""
    rolls_back: bool = False
    """The thread's checkpoints, title, status and questions become what they were before the run."""


class RunStore(ABC):
    """Runs and who owns them. Every write of a worker carries its attempt and fails when it is stale."""

    @abstractmethod
    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        """Admit a run in one transaction: make the thread if needed, mark it busy, store the row.

        A thread without a title gets the request's, which a rollback takes away again.
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
    async def sent_before(self, request: RunRequest) -> RunRecord | None:
        """Return the run that the user's request with this `idempotency_key` started, if there is one."""

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
