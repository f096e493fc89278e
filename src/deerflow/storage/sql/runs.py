"""Runs in SQLite, with their owners, leases and attempts."""

import sqlite3

from typing_extensions import override

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus
from deerflow.errors import ConflictError, NotFoundError
from deerflow.storage.base import LogBatch, RunEnd, RunStore
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock
from deerflow.storage.requests import dump_request
from deerflow.storage.sqlite import run_queue as queue
from deerflow.storage.sqlite.engine import Engine
from deerflow.storage.sqlite.events import append_batch, check_numbers
from deerflow.storage.sqlite.run_ends import settle
from deerflow.storage.sqlite.run_rows import CLOCK, COLUMNS, IN_FLIGHT, find, records

__all__ = ["CLOCK", "SqliteRunStore"]


class SqliteRunStore(RunStore):
    """Runs as rows; every write of a worker names its attempt."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @override
    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        body = dump_request(request)
        return await self._engine.write(lambda db: queue.create(db, run_id, request, body, owner))

    @override
    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        def work(db: sqlite3.Connection) -> RunRecord:
            record = find(db, run_id)
            if thread_id not in (None, record.thread_id):
                raise NotFoundError("run", run_id)
            return record

        return await self._engine.peek(work)

    @override
    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        sql = (
            f"SELECT {COLUMNS} FROM runs JOIN threads ON threads.key = runs.thread WHERE threads.id = ? "
            "AND (? IS NULL OR runs.status = ?) ORDER BY runs.key DESC LIMIT ? OFFSET ?"
        )
        values = (thread_id, status, status, max(limit, 0), max(offset, 0))
        return await self._engine.read(lambda db: records(db.execute(sql, values)))

    @override
    async def active(self) -> list[RunRecord]:
        sql = f"SELECT {COLUMNS} FROM runs WHERE {IN_FLIGHT} ORDER BY key"
        return await self._engine.read(lambda db: records(db.execute(sql)))

    @override
    async def claim(self, run_id: str, *, owner: str, attempt: int) -> RunRecord:
        return await self._engine.write(lambda db: queue.claim(db, run_id, owner, attempt))

    @override
    async def claim_next(self, thread_id: str, *, owner: str) -> RunRecord | None:
        # A look costs next to nothing, and mostly there is nobody waiting.
        if await self._engine.peek(lambda db: queue.next_of(db, thread_id)) is None:
            return None
        return await self._engine.write(lambda db: queue.claim_next(db, thread_id, owner))

    @override
    async def release(self, run_id: str, *, attempt: int) -> None:
        sql = (
            "UPDATE runs SET owner = NULL, lease_until = NULL, spared = spared + 1 "
            "WHERE id = ? AND attempt = ? AND status = 'running'"
        )
        await self._engine.write(lambda db: db.execute(sql, (run_id, attempt)).rowcount)

    @override
    async def settle(
        self, run_id: str, *, attempt: int, end: RunEnd, last: LogBatch | None = None
    ) -> RunRecord:
        if last is not None:
            check_numbers(last)

        def work(db: sqlite3.Connection) -> RunRecord:
            if last is not None:
                append_batch(db, last)
            return settle(db, run_id, attempt, end)

        return await self._engine.write(work)

    @override
    async def heartbeat(self, owner: str) -> dict[str, int]:
        def work(db: sqlite3.Connection) -> dict[str, int]:
            # Only leases that are half over: a heartbeat every second must not write every second.
            db.execute(
                f"UPDATE runs SET lease_until = {CLOCK} + {LEASE_SECONDS} "
                f"WHERE owner = ? AND lease_until < {CLOCK} + {LEASE_SECONDS // 2} AND {IN_FLIGHT}",
                (owner,),
            )
            return dict(
                db.execute(
                    f"SELECT id, attempt FROM runs WHERE owner = ? AND {IN_FLIGHT}", (owner,)
                ).fetchall()
            )

        return await self._engine.write(work)

    @override
    async def orphans(self, lock: OwnerLock) -> list[RunRecord]:
        # In a reader's thread: locks are files.
        return await self._engine.read(lambda db: queue.orphans(db, lock))

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
        def work(db: sqlite3.Connection) -> None:
            if not find(db, run_id).status.is_terminal:
                raise ConflictError(f"run {run_id} is still in flight: cancel it first")
            (key,) = db.execute("SELECT key FROM runs WHERE id = ?", (run_id,)).fetchone()
            db.execute("DELETE FROM events WHERE place >= ? AND place < ?", (key << 32, (key + 1) << 32))
            db.execute("DELETE FROM runs WHERE key = ?", (key,))

        await self._engine.write(work)
