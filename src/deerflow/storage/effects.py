"""Log of started and finished tool calls. Keeps a crash from doing things twice."""

from enum import StrEnum

from deerflow.errors import StaleAttemptError
from deerflow.storage.database import Database, Engine


class EffectState(StrEnum):
    """State of a tool call from an earlier attempt."""

    STARTED = "started"
    FINISHED = "finished"


class EffectLog:
    """Which tool calls of runs in flight were started and finished; deleted when their run ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self, run_id: str, *, attempt: int, call: bytes) -> EffectState | None:
        """Record the start of a call; return the state that an earlier attempt left for the same call.

        `StaleAttemptError` when another attempt owns the run. A second start in the same attempt ignores the
        first one: a call that is repeated after its result is intentional.
        """
        return await self._engine.write(lambda db: _start(db, run_id, attempt, call))

    def finish(self, run_id: str, *, attempt: int, call: bytes) -> None:
        """Record the end of a call, without waiting for it to be stored."""
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
