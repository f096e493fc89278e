"""Queue a procrastinate job for a run, in the same transaction that makes the run due."""

import orjson

from deerflow.storage.database import Database

QUEUE_NAME = "deerflow"
TASK_NAME = "deerflow.run"

# A run has at most one waiting job; its thread is locked, so no job can be added between check and insert.
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
    """Delete the job of a run unless it was fetched."""
    db.execute("DELETE FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo'", (_lock(run_id),))


def _lock(run_id: str) -> str:
    return f"{TASK_NAME}:{run_id}"
