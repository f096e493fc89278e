"""Delete expired data: events of old runs, checkpoints of long threads."""

from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import override

from deerflow.storage.base import Retention
from deerflow.storage.database import Database, Engine
from deerflow.storage.sql import checkpoint_codec as codec
from deerflow.storage.sql import checkpoint_walk as walks
from deerflow.storage.sql.run_rows import IN_FLIGHT

_HAS_EVENTS = (
    "EXISTS (SELECT 1 FROM events WHERE place >= runs.key * 4294967296 "
    "AND place < (runs.key + 1) * 4294967296)"
)


class SqlRetention(Retention):
    """Deletes in small transactions, so that other writes do not wait long."""

    def __init__(self, engine: Engine, serde: SerializerProtocol) -> None:
        self._engine = engine
        self._serde = serde

    @override
    async def drop_events(self, *, ended_before: datetime, limit: int) -> int:
        before = int(ended_before.timestamp() * 1_000_000)
        runs = await self._engine.read(lambda db: _expired(db, before, limit))
        for run, _ in runs:
            await self._engine.write(partial(_drop_events, run=run))
        for thread in {thread for _, thread in runs}:
            await self._engine.write(partial(_drop_fragments, thread=thread))
        return len(runs)

    @override
    async def drop_checkpoints(self, thread_id: str, *, keep: int) -> int:
        def deltas(body: bytes) -> Collection[str]:
            return codec.unheld_deltas(self._serde, body)

        return await self._engine.write(lambda db: _drop_checkpoints(db, thread_id, deltas, keep))


def _expired(db: Database, before: int, limit: int) -> list[tuple[int, int]]:
    """Return key and thread of runs that ended before and still have events."""
    found = db.execute(
        f"SELECT key, thread FROM runs WHERE NOT ({IN_FLIGHT}) AND updated_at < ? AND {_HAS_EVENTS} "
        "ORDER BY key LIMIT ?",
        (before, limit),
    )
    return [(key, thread) for key, thread in found]


def _drop_events(db: Database, run: int) -> None:
    db.execute("DELETE FROM events WHERE place >= ? AND place < ?", (run << 32, (run + 1) << 32))


def _drop_fragments(db: Database, thread: int) -> None:
    """Delete the fragments of a thread when no event refers to them and no run in flight will."""
    row = db.execute("SELECT id FROM threads WHERE key = ?", (thread,)).fetchone()
    if row is None:
        return
    db.hold(row[0])
    in_use = f"SELECT 1 FROM runs WHERE thread = ? AND ({IN_FLIGHT} OR {_HAS_EVENTS}) LIMIT 1"
    if db.execute(in_use, (thread,)).fetchone() is None:
        db.execute("DELETE FROM fragments WHERE place >= ? AND place < ?", (thread << 32, (thread + 1) << 32))


def _drop_checkpoints(
    db: Database, thread_id: str, deltas: Callable[[bytes], Collection[str]], keep: int
) -> int:
    db.hold(thread_id)
    # A run in flight may be rolled back to the checkpoint that was the newest before it.
    in_flight = (
        "SELECT 1 FROM runs JOIN threads ON threads.key = runs.thread "
        f"WHERE threads.id = ? AND runs.{IN_FLIGHT} LIMIT 1"
    )
    if db.execute(in_flight, (thread_id,)).fetchone() is not None:
        return 0
    return walks.keep_latest(db, thread_id, deltas, count=keep)
