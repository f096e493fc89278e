"""End runs: keep their results, or restore the thread to its state before them."""

import ormsgpack

from deerflow.domain import CancelAction, RunRecord, RunStatus, ThreadStatus
from deerflow.errors import RollbackWantedError
from deerflow.storage.base import RunEnd
from deerflow.storage.database import Database
from deerflow.storage.requests import dump_usage
from deerflow.storage.signals import run_topic
from deerflow.storage.sql import checkpoint_marks as marks
from deerflow.storage.sql.codec import now_us, printable
from deerflow.storage.sql.run_rows import IN_FLIGHT, find, free_status, mark_thread, next_waiting, stale

NEVER_STARTED = "cancelled_before_start"
"""Stop reason of a run that was cancelled while it was pending."""


def before_image(db: Database, thread: int, thread_id: str) -> bytes:
    """Return what a rollback of a run that starts now will restore."""
    title, status = db.execute("SELECT title, status FROM threads WHERE key = ?", (thread,)).fetchone()
    return ormsgpack.packb([marks.make_mark(db, thread_id), title, status])


def settle(db: Database, run_id: str, attempt: int, end: RunEnd) -> RunRecord:
    """Store the final state of a run and free its thread."""
    row = db.execute(
        f"SELECT key, thread, before, cancel FROM runs WHERE id = ? AND attempt = ? AND {IN_FLIGHT} "
        f"{db.dialect.locked}",
        (run_id, attempt),
    ).fetchone()
    if row is None:
        raise stale(find(db, run_id), attempt)
    key, thread, before, cancel = row
    if cancel == CancelAction.ROLLBACK and not end.rolls_back:
        raise RollbackWantedError(f"run {run_id} is to be rolled back")
    _write(db, key, end)
    settled = find(db, run_id)
    status, puts_back = end.thread_status, end.rolls_back and before is not None
    if puts_back:
        status = _put_back(db, thread, settled.thread_id, before)
    elif end.title is not None:
        db.execute("UPDATE threads SET title = ? WHERE key = ?", (printable(end.title), thread))
    following = next_waiting(db, thread)
    shown = status if following is None else ThreadStatus.BUSY
    mark_thread(db, thread, shown, end=None if puts_back else end)
    if following is not None:
        db.enqueue(following)
    db.notify(run_topic(run_id))
    return settled


def end_waiting(db: Database, key: int, run_id: str) -> None:
    """End a run that never started."""
    _write(db, key, RunEnd(RunStatus.INTERRUPTED, stop_reason=NEVER_STARTED))
    db.dequeue(run_id)
    db.notify(run_topic(run_id))


def _write(db: Database, key: int, end: RunEnd) -> None:
    db.execute(
        "UPDATE runs SET status = ?, error = ?, stop_reason = ?, usage = ?, message_count = ?, "
        "updated_at = ?, lease_until = NULL, cancel = NULL, before = NULL WHERE key = ?",
        (
            end.status,
            None if end.error is None else printable(end.error),
            None if end.stop_reason is None else printable(end.stop_reason),
            dump_usage(end.usage),
            end.message_count,
            now_us(),
            key,
        ),
    )
    db.execute("DELETE FROM effects WHERE run = ?", (key,))


def _put_back(db: Database, thread: int, thread_id: str, before: bytes) -> ThreadStatus:
    mark, title, status = ormsgpack.unpackb(before)
    marks.roll_back(db, thread_id, mark)
    db.execute("UPDATE threads SET title = ? WHERE key = ?", (title, thread))
    # A queued run found the thread busy because of another run; that status is not restored.
    return free_status(db, thread) if status == ThreadStatus.BUSY else ThreadStatus(status)
