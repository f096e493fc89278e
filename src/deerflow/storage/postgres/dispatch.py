"""Calls for somebody who takes up a run: a job for procrastinate, in the transaction that makes it due."""

import orjson

from deerflow.storage.database import Database

QUEUE_NAME = "deerflow"
TASK_NAME = "deerflow.run"

# A run has one waiting job at most; its thread is held, so nobody adds one between look and insert.
_DEFER = """
SELECT procrastinate_defer_jobs_v1(ARRAY[
    ROW(?, ?, 0, NULL, ?, CAST(? AS JSONB), to_timestamp(CAST(? AS DOUBLE PRECISION)))
]::procrastinate_job_to_defer_v1[])
WHERE NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo')
"""


def enqueue(db: Database, run_id: str, start_at: int | None = None) -> None:
    """Add a job for a run, to be fetched now or at a time in microseconds."""
    lock = _lock(run_id)
    args = orjson.dumps({"run_id": run_id}).decode()
    when = None if start_at is None else start_at / 1_000_000
    db.execute(_DEFER, (QUEUE_NAME, TASK_NAME, lock, args, when, lock))


def dequeue(db: Database, run_id: str) -> None:
    """Delete the job of a run that nobody has fetched yet."""
    db.execute("DELETE FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo'", (_lock(run_id),))


def _lock(run_id: str) -> str:
    return f"{TASK_NAME}:{run_id}"
