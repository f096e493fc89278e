"""The rows of runs: read, found, and what their columns mean."""

import sqlite3
from collections.abc import Iterable
from typing import Any

from deerflow.domain import CancelAction, RunRecord, RunStatus, ThreadStatus
from deerflow.errors import NotFoundError, StaleAttemptError
from deerflow.storage.requests import load_request, load_usage
from deerflow.storage.sqlite.codec import now_us, time_of, unpack

COLUMNS = (
    "runs.id, runs.status, runs.attempt, runs.owner, runs.error, runs.stop_reason, runs.usage, "
    "runs.message_count, runs.created_at, runs.updated_at, runs.request, runs.cancel, runs.spared"
)
IN_FLIGHT = "status IN ('pending', 'running')"
# The database's clock, not the process's: leases of several processes are compared with each other.
CLOCK = "CAST(strftime('%s', 'now') AS INTEGER)"


def find(db: sqlite3.Connection, run_id: str) -> RunRecord:
    """Return a run; `NotFoundError` when it is not there."""
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    return record(row)


def records(rows: Iterable[tuple[Any, ...]]) -> list[RunRecord]:
    """Return the runs behind rows of `COLUMNS`."""
    return [record(row) for row in rows]


def record(row: tuple[Any, ...]) -> RunRecord:
    """Return the run behind a row of `COLUMNS`."""
    (run_id, status, attempt, owner, error, stop_reason, usage) = row[:7]
    (count, created_at, updated_at, request, cancel, spared) = row[7:]
    return RunRecord(
        id=run_id,
        request=load_request(unpack(request)),
        status=RunStatus(status),
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
        attempt=attempt,
        owner=owner,
        error=error,
        stop_reason=stop_reason,
        usage=load_usage(usage),
        message_count=count,
        cancel=CancelAction(cancel) if cancel else None,
        spared=spared,
    )


def mark_thread(db: sqlite3.Connection, thread: int, status: ThreadStatus) -> None:
    """Set a thread's status, later than whatever was set before."""
    # So that two changes within one tick of the clock keep their order.
    db.execute(
        "UPDATE threads SET status = ?, updated_at = max(?, updated_at + 1) WHERE key = ?",
        (status, now_us(), thread),
    )


def stale(run: RunRecord, attempt: int) -> StaleAttemptError:
    """Return the error of a worker whose attempt is over."""
    return StaleAttemptError(
        f"attempt {attempt} of run {run.id} is over: it is {run.status} at attempt {run.attempt}"
    )
