"""The tool calls of runs in flight, in SQL."""

from typing_extensions import override

from deerflow.errors import StaleAttemptError
from deerflow.storage.base import EffectLog, EffectState
from deerflow.storage.database import Database, Engine


class SqlEffectLog(EffectLog):
    """One row per call, deleted when its run ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @override
    async def start(self, run_id: str, *, attempt: int, call: bytes) -> EffectState | None:
        return await self._engine.write(lambda db: _start(db, run_id, attempt, call))

    @override
    def finish(self, run_id: str, *, attempt: int, call: bytes) -> None:
        sql = (
            "UPDATE effects SET is_finished = 1 WHERE call = ? AND attempt = ? "
            "AND run = (SELECT key FROM runs WHERE id = ?)"
        )
        self._engine.post(lambda db: db.execute(sql, (call, attempt, run_id)))


def _start(db: Database, run_id: str, attempt: int, call: bytes) -> EffectState | None:
    row = db.execute(
        f"SELECT key FROM runs WHERE id = ? AND attempt = ? AND status = 'running' {db.dialect.shared}",
        (run_id, attempt),
    ).fetchone()
    if row is None:
        raise StaleAttemptError(f"attempt {attempt} of run {run_id} is over: its tools may do no more")
    earlier = None
    if attempt > 1:
        earlier = db.execute(
            "SELECT is_finished FROM effects WHERE run = ? AND call = ? AND attempt < ?",
            (row[0], call, attempt),
        ).fetchone()
    db.execute(
        "INSERT INTO effects VALUES (?, ?, ?, 0) ON CONFLICT (run, call) "
        "DO UPDATE SET attempt = excluded.attempt, is_finished = 0",
        (row[0], call, attempt),
    )
    if earlier is None:
        return None
    return EffectState.FINISHED if earlier[0] else EffectState.STARTED
