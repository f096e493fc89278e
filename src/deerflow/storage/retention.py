"""Delete expired data: events of old runs, checkpoints of long threads."""

from datetime import datetime
from functools import partial

from deerflow.storage.checkpoint_rows import keep_latest
from deerflow.storage.database import Database, Engine
from deerflow.storage.events import delete_events, delete_fragments
from deerflow.storage.threads import IN_FLIGHT

_HAS_EVENTS = (
    "EXISTS (SELECT 1 FROM events WHERE position >= runs.key * 4294967296 "
    "AND position < (runs.key + 1) * 4294967296)"
)


class Retention:
    """Deletes in small transactions, so that other writes do not wait long."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def drop_events(self, *, ended_before: datetime, limit: int) -> int:
        """Delete the events of up to `limit` runs that ended before; return how many runs had any."""
        before = int(ended_before.timestamp() * 1_000_000)
        runs = await self._engine.read(lambda db: _expired(db, before, limit))
        for run, _ in runs:
            await self._engine.write(partial(delete_events, run=run))
        for thread in {thread for _, thread in runs}:
            await self._engine.write(partial(_drop_fragments, thread=thread))
        return len(runs)

    async def drop_checkpoints(self, thread_id: str, *, keep: int) -> int:
        """Delete all but the newest `keep` checkpoints of a thread and of each of its sub-threads.

        Ancestors that the kept ones are rebuilt from stay. Returns how many were deleted; 0 while a run of
        the thread is in flight.
        """
        return await self._engine.write(lambda db: _drop_checkpoints(db, thread_id, keep))


def _expired(db: Database, before: int, limit: int) -> list[tuple[int, int]]:
    """Return key and thread of runs that ended before and still have events."""
    found = db.execute(
        f"SELECT key, thread FROM runs WHERE NOT ({IN_FLIGHT}) AND updated_at < ? AND {_HAS_EVENTS} "
        "ORDER BY key LIMIT ?",
        (before, limit),
    )
    return [(key, thread) for key, thread in found]


def _drop_fragments(db: Database, thread: int) -> None:
    """Delete the fragments of a thread when no event refers to them and no run in flight will."""
    row = db.execute("SELECT id FROM threads WHERE key = ?", (thread,)).fetchone()
    if row is None:
        return
    db.lock_thread(row[0])
    in_use = f"SELECT 1 FROM runs WHERE thread = ? AND ({IN_FLIGHT} OR {_HAS_EVENTS}) LIMIT 1"
    if db.execute(in_use, (thread,)).fetchone() is None:
        delete_fragments(db, thread)


def _drop_checkpoints(db: Database, thread_id: str, keep: int) -> int:
    db.lock_thread(thread_id)
    # A run in flight may be rolled back to the checkpoint that was the newest before it.
    in_flight = (
        "SELECT 1 FROM runs JOIN threads ON threads.key = runs.thread "
        f"WHERE threads.id = ? AND runs.{IN_FLIGHT} LIMIT 1"
    )
    if db.execute(in_flight, (thread_id,)).fetchone() is not None:
        return 0
    return keep_latest(db, thread_id, count=keep)
