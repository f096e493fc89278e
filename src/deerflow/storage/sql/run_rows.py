"""Read rows of runs, and helpers for their columns."""

import functools
import logging
import zlib
from collections.abc import Iterable
from typing import Any

from deerflow.domain import CancelAction, RunRecord, RunStatus, ThreadStatus
from deerflow.errors import NotFoundError, StaleAttemptError, StorageError
from deerflow.storage.base import RunEnd
from deerflow.storage.database import Database
from deerflow.storage.requests import dump_questions, load_request, load_usage
from deerflow.storage.sql.codec import LATER, later, now_us, printable, time_of, unpack

logger = logging.getLogger(__name__)

COLUMNS = (
    "runs.id, runs.status, runs.attempt, runs.owner, runs.error, runs.stop_reason, runs.usage, "
    "runs.message_count, runs.created_at, runs.updated_at, runs.request, runs.cancel, runs.releases"
)
IN_FLIGHT = "status IN ('pending', 'running')"
ORDER = "coalesce(start_at, created_at), key"
"""Order in which the pending runs of a thread start."""


def find(db: Database, run_id: str) -> RunRecord:
    """Return a run; raise `NotFoundError` when it does not exist."""
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    return record(row)


def hold_run(db: Database, run_id: str) -> tuple[int, int]:
    """Lock the runs of this run's thread; return the keys of run and thread."""
    row = db.execute(
        "SELECT runs.key, runs.thread, threads.id FROM runs JOIN threads ON threads.key = runs.thread "
        "WHERE runs.id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    db.hold(row[2])
    return row[0], row[1]


def next_waiting(db: Database, thread: int) -> str | None:
    """Return the next run of a thread in which none is running."""
    row = db.execute(
        f"SELECT id FROM runs {db.dialect.by_flight} WHERE {IN_FLIGHT} AND thread = ? "
        f"AND coalesce(start_at, 0) <= ? ORDER BY {ORDER} LIMIT 1",
        (thread, now_us()),
    ).fetchone()
    return None if row is None else str(row[0])


def records(rows: Iterable[tuple[Any, ...]]) -> list[RunRecord]:
    """Return the runs of rows of `COLUMNS`, without unreadable ones."""
    return [run for row in rows if (run := readable(row)) is not None]


def readable(row: tuple[Any, ...]) -> RunRecord | None:
    """Return the run of a row of `COLUMNS`; None for an unreadable one, which must not block the others."""
    try:
        return record(row)
    except StorageError as error:
        _warn_of(str(error))
        return None


@functools.lru_cache(maxsize=1000)  # warn once per run: all runs are polled every second
def _warn_of(problem: str) -> None:
    logger.warning("%s; it is left alone", problem)


def record(row: tuple[Any, ...]) -> RunRecord:
    """Return the run of a row of `COLUMNS`; raise `StorageError` when it is unreadable."""
    try:
        return _record(row)
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
        raise StorageError(
            f"the row of run {row[0]} cannot be read: it is damaged, or of a newer version"
        ) from error


def _record(row: tuple[Any, ...]) -> RunRecord:
    (run_id, status, attempt, owner, error, stop_reason, usage) = row[:7]
    (count, created_at, updated_at, request, cancel, releases) = row[7:]
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
        releases=releases,
    )


def mark_thread(
    db: Database, thread: int, status: ThreadStatus, *, end: RunEnd | None = None, title: str | None = None
) -> None:
    """Set a thread's status, with a later `updated_at` than before.

    Args:
        end: Its interrupts become the thread's; None keeps the current ones.
        title: Title for a thread that has none.
    """
    asked = () if end is None else (dump_questions(end.interrupts), end.asks)
    named = () if title is None else (printable(title),)
    # `LATER` keeps the order of two changes within one clock tick.
    db.execute(
        f"UPDATE threads SET status = ?, updated_at = {LATER}"
        f"{', interrupts = ?, asks = ?' if asked else ''}"
        f"{', title = coalesce(title, ?)' if named else ''} WHERE key = ?",
        (status, *later(), *asked, *named, thread),
    )


def free_status(db: Database, thread: int) -> ThreadStatus:
    """Return the status of a thread without a busy run: interrupted while an interrupt is pending."""
    status, asked = db.execute("SELECT status, interrupts FROM threads WHERE key = ?", (thread,)).fetchone()
    if status != ThreadStatus.BUSY:
        return ThreadStatus(status)
    return ThreadStatus.IDLE if asked is None else ThreadStatus.INTERRUPTED


def stale(run: RunRecord, attempt: int) -> StaleAttemptError:
    """Return the error for a worker whose attempt has ended."""
    return StaleAttemptError(
        f"attempt {attempt} of run {run.id} is over: it is {run.status} at attempt {run.attempt}"
    )
