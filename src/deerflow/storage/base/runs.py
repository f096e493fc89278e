"""Store of runs, their owners and their outcomes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, ThreadStatus, TokenUse
from deerflow.storage.base.events import LogBatch
from deerflow.storage.owners import OwnerLock


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Final state of a run."""

    status: RunStatus
    thread_status: ThreadStatus = ThreadStatus.IDLE
    """Status of the thread afterwards; a run that waits for an answer leaves it interrupted."""
    error: str | None = None
    error_in_chinese: str | None = None
    """The error message in Chinese, where there is a translation."""
    error_reason: str | None = None
    """Category of a model failure, such as `rate_limited`."""
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    message_count: int = 0
    title: str | None = None
    """The title that the run gave its thread."""
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    """The thread's pending interrupts, by graph task."""
    asks: bool = False
    """The run ended with a question to the user."""
    rolls_back: bool = False
    """Restore the thread's checkpoints, title, status and interrupts from before the run."""


class RunStore(ABC):
    """Runs and their owners. Every write of a worker carries its attempt and fails when it is stale."""

    @abstractmethod
    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        """Admit a run in one transaction: create the thread if needed, mark it busy, store the row.

        A thread without a title gets the request's, which a rollback removes again.
        With an `owner`, a run whose thread is free is claimed at once and returned as `running` with
        attempt 1. Otherwise it is returned as `pending` and queued. If the thread has runs in flight, the
        multitask strategy decides:

        - `reject` raises `ThreadBusyError`;
        - `enqueue` queues the run behind them;
        - `interrupt` and `rollback` request that cancellation of the running one, end the pending ones, and
          queue the run.

        A run with `after_seconds` blocks no other run before its start time. An `idempotency_key` that the
        user sent before returns the run of that request, whose id then differs from `run_id`.
        """

    @abstractmethod
    async def by_idempotency_key(self, request: RunRequest) -> RunRecord | None:
        """Return the run that an earlier request with the same user and `idempotency_key` started, if any."""

    @abstractmethod
    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord: ...

    @abstractmethod
    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        """Return a thread's runs, newest first."""

    @abstractmethod
    async def count_of_thread(self, thread_id: str, *, status: RunStatus | None = None) -> int:
        """Return the number of a thread's runs."""

    @abstractmethod
    async def active(self) -> list[RunRecord]:
        """Return all pending and running runs, oldest first."""

    @abstractmethod
    async def claim(self, run_id: str, *, owner: str, attempt: int) -> RunRecord:
        """Claim a run that is still at `attempt`: set owner, `running` and `attempt + 1`.

        `StaleAttemptError` when another owner claimed it first, another run of the thread is running, or the
        run has ended. The first claim saves the state that a rollback restores.
        """

    @abstractmethod
    async def claim_next(self, thread_id: str, *, owner: str) -> RunRecord | None:
        """Claim the next run of a thread; None when there is none or one is running."""

    @abstractmethod
    async def release(self, run_id: str, *, attempt: int) -> None:
        """Release a running run so that any owner may claim it; a stale attempt changes nothing."""

    @abstractmethod
    async def settle(
        self, run_id: str, *, attempt: int, end: RunEnd, last: LogBatch | None = None
    ) -> RunRecord:
        """Store the final state and free the thread; raise `StaleAttemptError` when not the owner any more.

        `last` holds the run's last events, stored in the same transaction, so that a log ends if and
        only if its run has ended. If a rollback was requested, any other end raises
        `RollbackWantedError`.
        """

    @abstractmethod
    async def heartbeat(self, owner: str) -> dict[str, int]:
        """Extend the leases of the owner's runs by the database's clock; return the attempts by run."""

    @abstractmethod
    async def orphans(self, lock: OwnerLock, *, limit: int | None = None) -> list[RunRecord]:
        """Return the runs in flight that have no live owner, oldest first, up to `limit`.

        These are: a pending run that is next in its thread, or a running one without an owner, with an owner
        on this machine whose lock is free, or with an expired lease. On SQLite, where owners are normally on
        this machine, the lease of an owner that holds its lock is ignored.
        """

    @abstractmethod
    async def request_cancel(self, run_id: str, action: CancelAction) -> RunRecord:
        """Store a cancel request for the owner, on whichever machine it is; a pending run ends at once."""

    @abstractmethod
    async def cancel_requests(self, owner: str) -> dict[str, CancelAction]:
        """Return the cancel requests for the running runs of `owner`."""

    @abstractmethod
    async def delete(self, run_id: str) -> None:
        """Delete a run that has ended, with its events."""
