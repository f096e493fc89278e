"""Runs in SQL, with their owners, leases and attempts."""

from typing_extensions import override

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus
from deerflow.errors import ConflictError, NotFoundError
from deerflow.storage.base import LogBatch, RunEnd, RunStore
from deerflow.storage.database import Database, Engine
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock
from deerflow.storage.requests import dump_request
from deerflow.storage.sql import run_queue as queue
from deerflow.storage.sql.events import append_batch, check_numbers
from deerflow.storage.sql.run_ends import settle
from deerflow.storage.sql.run_rows import COLUMNS, IN_FLIGHT, find, hold_run, records

_OF_THREAD = (
    "FROM runs JOIN threads ON threads.key = runs.thread WHERE threads.id = ? "
    "AND (CAST(? AS TEXT) IS NULL OR runs.status = ?)"
)


class SqlRunStore(RunStore):
    """Runs as rows; every write of a worker carries its attempt."""

    def __init__(self, engine: Engine, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Store runs in this database.

        Args:
            lease_seconds: How long a run keeps its owner without a heartbeat.
        """
        self._engine = engine
        self._lease_seconds = float(lease_seconds)

    @override
    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        body, lease = dump_request(request), self._lease_seconds
        return await self._engine.write(
            lambda db: queue.create(db, run_id, request, body, owner, lease), weight=len(body)
        )

    @override
    async def by_idempotency_key(self, request: RunRequest) -> RunRecord | None:
        return await self._engine.peek(lambda db: queue.sent_before(db, request))

    @override
    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        def work(db: Database) -> RunRecord:
            record = find(db, run_id)
            if thread_id not in (None, record.thread_id):
                raise NotFoundError("run", run_id)
            return record

        return await self._engine.peek(work)

    @override
    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        sql = f"SELECT {COLUMNS} {_OF_THREAD} ORDER BY runs.key DESC LIMIT ? OFFSET ?"
        values = (thread_id, status, status, max(limit, 0), max(offset, 0))
        return await self._engine.read(lambda db: records(db.execute(sql, values)))

    @override
    async def count_of_thread(self, thread_id: str, *, status: RunStatus | None = None) -> int:
        sql, values = f"SELECT count(*) {_OF_THREAD}", (thread_id, status, status)
        return await self._engine.read(lambda db: int(db.execute(sql, values).fetchone()[0]))

    @override
    async def active(self) -> list[RunRecord]:
        sql = f"SELECT {COLUMNS} FROM runs WHERE {IN_FLIGHT} ORDER BY key"
        return await self._engine.read(lambda db: records(db.execute(sql)))

    @override
    async def claim(self, run_id: str, *, owner: str, attempt: int) -> RunRecord:
        lease = self._lease_seconds
        return await self._engine.write(lambda db: queue.claim(db, run_id, owner, attempt, lease))

    @override
    async def claim_next(self, thread_id: str, *, owner: str) -> RunRecord | None:
        # A read is cheap, and usually no run is waiting.
        if await self._engine.peek(lambda db: queue.next_of(db, thread_id)) is None:
            return None
        lease = self._lease_seconds
        return await self._engine.write(lambda db: queue.claim_next(db, thread_id, owner, lease))

    @override
    async def release(self, run_id: str, *, attempt: int) -> None:
        await self._engine.write(lambda db: queue.release(db, run_id, attempt))

    @override
    async def settle(
        self, run_id: str, *, attempt: int, end: RunEnd, last: LogBatch | None = None
    ) -> RunRecord:
        if last is not None:
            check_numbers(last)

        def work(db: Database) -> RunRecord:
            hold_run(db, run_id)
            if last is not None:
                append_batch(db, last)
            return settle(db, run_id, attempt, end)

        return await self._engine.write(work)

    @override
    async def heartbeat(self, owner: str) -> dict[str, int]:
        def work(db: Database) -> dict[str, int]:
            # Only leases that are half over: a heartbeat every second must not write every second.
            clock, lease = db.dialect.clock, self._lease_seconds
            db.execute(
                f"UPDATE runs SET lease_until = {clock} + ? "
                f"WHERE owner = ? AND lease_until < {clock} + ? AND {IN_FLIGHT}",
                (lease, owner, lease / 2),
            )
            return dict(
                db.execute(
                    f"SELECT id, attempt FROM runs WHERE owner = ? AND {IN_FLIGHT}", (owner,)
                ).fetchall()
            )

        return await self._engine.write(work)

    @override
    async def orphans(self, lock: OwnerLock, *, limit: int | None = None) -> list[RunRecord]:
        # In a reader thread: checking locks opens files.
        return await self._engine.read(lambda db: queue.orphans(db, lock, limit))

    @override
    async def request_cancel(self, run_id: str, action: CancelAction) -> RunRecord:
        return await self._engine.write(lambda db: queue.request_cancel(db, run_id, action))

    @override
    async def cancel_requests(self, owner: str) -> dict[str, CancelAction]:
        sql = f"SELECT id, cancel FROM runs WHERE owner = ? AND cancel IS NOT NULL AND {IN_FLIGHT}"
        rows = await self._engine.peek(lambda db: db.execute(sql, (owner,)).fetchall())
        return {run_id: CancelAction(action) for run_id, action in rows}

    @override
    async def delete(self, run_id: str) -> None:
        def work(db: Database) -> None:
            key, _ = hold_run(db, run_id)
            if not find(db, run_id).status.is_terminal:
                raise ConflictError(f"run {run_id} is still in flight: cancel it first")
            db.execute("DELETE FROM events WHERE place >= ? AND place < ?", (key << 32, (key + 1) << 32))
            db.execute("DELETE FROM runs WHERE key = ?", (key,))

        await self._engine.write(work)
