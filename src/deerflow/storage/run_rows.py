"""Rows of runs: how they are read, what their end writes, and what a rollback restores."""

import functools
import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ormsgpack

from deerflow.domain import CancelAction, RunRecord, RunStatus, ThreadStatus, TokenUse
from deerflow.errors import NotFoundError, RollbackWantedError, StaleAttemptError, StorageError
from deerflow.storage import checkpoint_rows as checkpoints
from deerflow.storage.database import Database
from deerflow.storage.encoding import (
    LATER,
    decompress,
    dump_interrupts,
    dump_usage,
    later,
    load_request,
    load_usage,
    now_us,
    time_of,
    without_nul,
)
from deerflow.storage.signals import run_topic

logger = logging.getLogger(__name__)

COLUMNS = (
    "runs.id, runs.status, runs.attempt, runs.owner, runs.error, runs.stop_reason, runs.usage, "
    "runs.message_count, runs.created_at, runs.updated_at, runs.request, runs.cancel, runs.releases"
)
IN_FLIGHT = "status IN ('pending', 'running')"
ORDER = "coalesce(start_at, created_at), key"
"""Order in which the pending runs of a thread start."""
CANCELLED_BEFORE_START = "cancelled_before_start"
"""Stop reason of a run that was cancelled while it was pending."""


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


def find_run(db: Database, run_id: str) -> RunRecord:
    """Return a run; raise `NotFoundError` when it does not exist."""
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    return record(row)


def lock_run(db: Database, run_id: str) -> tuple[int, int]:
    """Lock the runs of this run's thread; return the keys of run and thread."""
    row = db.execute(
        "SELECT runs.key, runs.thread, threads.id FROM runs JOIN threads ON threads.key = runs.thread "
        "WHERE runs.id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    db.lock_thread(row[2])
    return row[0], row[1]


def records(rows: Iterable[tuple[Any, ...]]) -> list[RunRecord]:
    """Return the runs of rows of `COLUMNS`, without unreadable ones."""
    return [run for row in rows if (run := readable(row)) is not None]


def readable(row: tuple[Any, ...]) -> RunRecord | None:
    """Return the run of a row of `COLUMNS`; None for an unreadable one, which must not block the others."""
    try:
        return record(row)
    except StorageError as error:
        _warn_once(str(error))
        return None


@functools.lru_cache(maxsize=1000)  # once per run: all runs are polled every second
def _warn_once(problem: str) -> None:
    logger.warning("%s; it is skipped", problem)


def record(row: tuple[Any, ...]) -> RunRecord:
    """Return the run of a row of `COLUMNS`; raise `StorageError` when it is unreadable."""
    (run_id, status, attempt, owner, error, stop_reason, usage) = row[:7]
    (count, created_at, updated_at, request, cancel, releases) = row[7:]
    try:
        return RunRecord(
            id=run_id,
            request=load_request(decompress(request)),
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
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as problem:
        raise StorageError(
            f"the row of run {run_id} cannot be read: it is damaged, or of a newer version"
        ) from problem


def rollback_state(db: Database, thread: int, thread_id: str) -> bytes:
    """Return what a rollback of a run that starts now will restore."""
    title, status = db.execute("SELECT title, status FROM threads WHERE key = ?", (thread,)).fetchone()
    return ormsgpack.packb([checkpoints.rollback_point(db, thread_id), title, status])


def settle(db: Database, run_id: str, attempt: int, end: RunEnd) -> RunRecord:
    """Store the final state of a run and free its thread."""
    row = db.execute(
        f"SELECT key, thread, before, cancel FROM runs WHERE id = ? AND attempt = ? AND {IN_FLIGHT} "
        f"{db.dialect.locked}",
        (run_id, attempt),
    ).fetchone()
    if row is None:
        raise stale_attempt(find_run(db, run_id), attempt)
    key, thread, before, cancel = row
    if cancel == CancelAction.ROLLBACK and not end.rolls_back:
        raise RollbackWantedError(f"run {run_id} is to be rolled back")
    _write_end(db, key, end)
    settled = find_run(db, run_id)
    status, restores = end.thread_status, end.rolls_back and before is not None
    if restores:
        status = _restore(db, thread, settled.thread_id, before)
    elif end.title is not None:
        db.execute("UPDATE threads SET title = ? WHERE key = ?", (without_nul(end.title), thread))
    following = _next_pending(db, thread)
    shown = status if following is None else ThreadStatus.BUSY
    update_thread(db, thread, shown, end=None if restores else end)
    if following is not None:
        db.enqueue(following)
    db.notify(run_topic(run_id))
    return settled


def end_pending(db: Database, key: int, run_id: str) -> None:
    """End a run that never started."""
    _write_end(db, key, RunEnd(RunStatus.INTERRUPTED, stop_reason=CANCELLED_BEFORE_START))
    db.dequeue(run_id)
    db.notify(run_topic(run_id))


def _write_end(db: Database, key: int, end: RunEnd) -> None:
    db.execute(
        "UPDATE runs SET status = ?, error = ?, stop_reason = ?, usage = ?, message_count = ?, "
        "updated_at = ?, lease_until = NULL, cancel = NULL, before = NULL WHERE key = ?",
        (
            end.status,
            None if end.error is None else without_nul(end.error),
            None if end.stop_reason is None else without_nul(end.stop_reason),
            dump_usage(end.usage),
            end.message_count,
            now_us(),
            key,
        ),
    )
    db.execute("DELETE FROM effects WHERE run = ?", (key,))


def _restore(db: Database, thread: int, thread_id: str, before: bytes) -> ThreadStatus:
    point, title, status = ormsgpack.unpackb(before)
    checkpoints.roll_back(db, thread_id, point)
    db.execute("UPDATE threads SET title = ? WHERE key = ?", (title, thread))
    # A queued run found the thread busy because of another run; that status is not restored.
    return free_status(db, thread) if status == ThreadStatus.BUSY else ThreadStatus(status)


def _next_pending(db: Database, thread: int) -> str | None:
    """Return the next run of a thread in which none is running."""
    row = db.execute(
        f"SELECT id FROM runs {db.dialect.by_flight} WHERE {IN_FLIGHT} AND thread = ? "
        f"AND coalesce(start_at, 0) <= ? ORDER BY {ORDER} LIMIT 1",
        (thread, now_us()),
    ).fetchone()
    return None if row is None else str(row[0])


def update_thread(
    db: Database, thread: int, status: ThreadStatus, *, end: RunEnd | None = None, title: str | None = None
) -> None:
    """Set a thread's status, with a later `updated_at` than before.

    Args:
        end: Its interrupts become the thread's; None keeps the current ones.
        title: Title for a thread that has none.
    """
    asked = () if end is None else (dump_interrupts(end.interrupts), end.asks)
    named = () if title is None else (without_nul(title),)
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


def stale_attempt(run: RunRecord, attempt: int) -> StaleAttemptError:
    """Return the error for a worker whose attempt has ended."""
    return StaleAttemptError(
        f"attempt {attempt} of run {run.id} is over: it is {run.status} at attempt {run.attempt}"
    )
