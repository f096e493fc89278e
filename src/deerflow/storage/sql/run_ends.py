"""How runs end: kept as they are, or with the thread put back to where it was before them."""

import sqlite3

import ormsgpack

from deerflow.domain import CancelAction, RunRecord, RunStatus, ThreadStatus
from deerflow.errors import RollbackWantedError
from deerflow.storage.base import RunEnd
from deerflow.storage.requests import dump_usage
from deerflow.storage.sqlite import checkpoint_marks as marks
from deerflow.storage.sqlite.codec import now_us
from deerflow.storage.sqlite.run_rows import IN_FLIGHT, find, mark_thread, stale

NEVER_STARTED = "cancelled_before_start"
"""The stop reason of a run that was cancelled while it waited."""


def before_image(db: sqlite3.Connection, thread: int, thread_id: str) -> bytes:
    """Return what a rollback of a run that starts now will put back."""
    title, status = db.execute("SELECT title, status FROM threads WHERE key = ?", (thread,)).fetchone()
    return ormsgpack.packb([marks.make_mark(db, thread_id), title, status])


def settle(db: sqlite3.Connection, run_id: str, attempt: int, end: RunEnd) -> RunRecord:
    """Write the final state of a run and free its thread."""
    row = db.execute(
        f"SELECT key, thread, before, cancel FROM runs WHERE id = ? AND attempt = ? AND {IN_FLIGHT}",
        (run_id, attempt),
    ).fetchone()
    if row is None:
        raise stale(find(db, run_id), attempt)
    key, thread, before, cancel = row
    if cancel == CancelAction.ROLLBACK and not end.rolls_back:
        raise RollbackWantedError(f"run {run_id} is to be rolled back")
    _write(db, key, end)
    settled = find(db, run_id)
    status = end.thread_status
    if end.rolls_back and before is not None:
        status = _put_back(db, thread, settled.thread_id, before)
    mark_thread(db, thread, ThreadStatus.BUSY if _has_more(db, thread) else status)
    return settled


def end_waiting(db: sqlite3.Connection, key: int) -> None:
    """End a run that never started."""
    _write(db, key, RunEnd(RunStatus.INTERRUPTED, stop_reason=NEVER_STARTED))


def _write(db: sqlite3.Connection, key: int, end: RunEnd) -> None:
    db.execute(
        "UPDATE runs SET status = ?, error = ?, stop_reason = ?, usage = ?, message_count = ?, "
        "updated_at = ?, lease_until = NULL, cancel = NULL, before = NULL WHERE key = ?",
        (end.status, end.error, end.stop_reason, dump_usage(end.usage), end.message_count, now_us(), key),
    )
    db.execute("DELETE FROM effects WHERE run = ?", (key,))


def _put_back(db: sqlite3.Connection, thread: int, thread_id: str, before: bytes) -> ThreadStatus:
    mark, title, status = ormsgpack.unpackb(before)
    marks.roll_back(db, thread_id, mark)
    db.execute("UPDATE threads SET title = ? WHERE key = ?", (title, thread))
    # A run that waited for another found the thread busy; it was not that by itself.
    return ThreadStatus.IDLE if status == ThreadStatus.BUSY else ThreadStatus(status)


def _has_more(db: sqlite3.Connection, thread: int) -> bool:
    row = db.execute(
        f"SELECT 1 FROM runs INDEXED BY runs_in_flight WHERE {IN_FLIGHT} AND thread = ? "
        "AND coalesce(start_at, 0) <= ? LIMIT 1",
        (thread, now_us()),
    ).fetchone()
    return row is not None
