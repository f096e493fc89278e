"""Runs in SQLite, with their owners, leases and attempts."""

import sqlite3
from typing import Any

from typing_extensions import override

from deerflow.domain import CancelAction, MultitaskStrategy, RunRecord, RunRequest, RunStatus, ThreadStatus
from deerflow.errors import ConflictError, NotFoundError, StaleAttemptError, ThreadBusyError
from deerflow.storage.base import LogBatch, RunEnd, RunStore
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock
from deerflow.storage.requests import dump_request, dump_usage, load_request, load_usage
from deerflow.storage.sqlite.codec import now_us, pack, time_of, unpack
from deerflow.storage.sqlite.engine import Engine
from deerflow.storage.sqlite.events import append_batch, check_numbers
from deerflow.storage.sqlite.threads import ensure_thread

COLUMNS = (
    "runs.id, runs.status, runs.attempt, runs.owner, runs.error, runs.stop_reason, runs.usage, "
    "runs.message_count, runs.created_at, runs.updated_at, runs.request"
)
IN_FLIGHT = "status IN ('pending', 'running')"
# The database's clock, not the process's: leases of several processes are compared with each other.
CLOCK = "CAST(strftime('%s', 'now') AS INTEGER)"


class SqliteRunStore(RunStore):
    """Runs as rows; every write of a worker names its attempt."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @override
    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        body = dump_request(request)
        return await self._engine.write(lambda db: _create(db, run_id, request, body, owner))

    @override
    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        def work(db: sqlite3.Connection) -> RunRecord:
            record = _find(db, run_id)
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
        return await self._engine.read(lambda db: _records(db.execute(sql, values)))

    @override
    async def active(self) -> list[RunRecord]:
        sql = f"SELECT {COLUMNS} FROM runs WHERE {IN_FLIGHT} ORDER BY key"
        return await self._engine.read(lambda db: _records(db.execute(sql)))

    @override
    async def claim(self, run_id: str, *, owner: str, attempt: int) -> RunRecord:
        def work(db: sqlite3.Connection) -> RunRecord:
            changed = db.execute(
                f"UPDATE runs SET owner = ?, status = 'running', attempt = attempt + 1, "
                f"lease_until = {CLOCK} + {LEASE_SECONDS}, updated_at = ? "
                f"WHERE id = ? AND attempt = ? AND {IN_FLIGHT}",
                (owner, now_us(), run_id, attempt),
            ).rowcount
            record = _find(db, run_id)
            if not changed:
                raise _stale(record, attempt)
            return record

        return await self._engine.write(work)

    @override
    async def settle(
        self, run_id: str, *, attempt: int, end: RunEnd, last: LogBatch | None = None
    ) -> RunRecord:
        if last is not None:
            check_numbers(last)

        def work(db: sqlite3.Connection) -> RunRecord:
            if last is not None:
                append_batch(db, last)
            return _settle(db, run_id, attempt, end)

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
        sql = f"SELECT {COLUMNS}, coalesce(lease_until, 0) < {CLOCK} FROM runs WHERE {IN_FLIGHT} ORDER BY key"

        def work(db: sqlite3.Connection) -> list[RunRecord]:  # in a reader's thread: locks are files
            rows = db.execute(sql).fetchall()
            return [_record(row[:-1]) for row in rows if _is_orphaned(row[3], bool(row[-1]), lock)]

        return await self._engine.read(work)

    @override
    async def request_cancel(self, run_id: str, action: CancelAction) -> None:
        def work(db: sqlite3.Connection) -> None:
            _find(db, run_id)
            db.execute(f"UPDATE runs SET cancel = ? WHERE id = ? AND {IN_FLIGHT}", (action, run_id))

        await self._engine.write(work)

    @override
    async def cancel_requests(self, owner: str) -> dict[str, CancelAction]:
        sql = f"SELECT id, cancel FROM runs WHERE owner = ? AND cancel IS NOT NULL AND {IN_FLIGHT}"
        rows = await self._engine.peek(lambda db: db.execute(sql, (owner,)).fetchall())
        return {run_id: CancelAction(action) for run_id, action in rows}

    @override
    async def delete(self, run_id: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            if not _find(db, run_id).status.is_terminal:
                raise ConflictError(f"run {run_id} is still in flight: cancel it first")
            (key,) = db.execute("SELECT key FROM runs WHERE id = ?", (run_id,)).fetchone()
            db.execute("DELETE FROM events WHERE place >= ? AND place < ?", (key << 32, (key + 1) << 32))
            db.execute("DELETE FROM runs WHERE key = ?", (key,))

        await self._engine.write(work)


def _create(
    db: sqlite3.Connection, run_id: str, request: RunRequest, body: bytes, owner: str | None
) -> RunRecord:
    thread, user_id = ensure_thread(db, request.thread_id, request.user_id, "{}")
    if user_id != request.user_id:
        raise NotFoundError("thread", request.thread_id)
    if request.multitask_strategy is MultitaskStrategy.REJECT and (other := _in_flight(db, thread)):
        raise ThreadBusyError(request.thread_id, other)
    now = now_us()
    status, attempt = (RunStatus.RUNNING, 1) if owner else (RunStatus.PENDING, 0)
    try:
        db.execute(
            "INSERT INTO runs (id, thread, status, attempt, owner, lease_until, message_count, created_at, "
            f"updated_at, request) VALUES (?, ?, ?, ?, ?, {CLOCK} + {LEASE_SECONDS}, 0, ?, ?, ?)",
            (run_id, thread, status, attempt, owner, now, now, pack(body)),
        )
    except sqlite3.IntegrityError as error:
        raise ConflictError(f"run id '{run_id}' is taken") from error
    _mark_thread(db, thread, ThreadStatus.BUSY)
    return RunRecord(run_id, request, status, time_of(now), time_of(now), attempt, owner)


def _settle(db: sqlite3.Connection, run_id: str, attempt: int, end: RunEnd) -> RunRecord:
    changed = db.execute(
        "UPDATE runs SET status = ?, error = ?, stop_reason = ?, usage = ?, message_count = ?, "
        f"updated_at = ?, lease_until = NULL, cancel = NULL WHERE id = ? AND attempt = ? AND {IN_FLIGHT}",
        (
            end.status,
            end.error,
            end.stop_reason,
            dump_usage(end.usage),
            end.message_count,
            now_us(),
            run_id,
            attempt,
        ),
    ).rowcount
    record = _find(db, run_id)
    if not changed:
        raise _stale(record, attempt)
    (thread,) = db.execute("SELECT thread FROM runs WHERE id = ?", (run_id,)).fetchone()
    is_busy = _in_flight(db, thread) is not None
    _mark_thread(db, thread, ThreadStatus.BUSY if is_busy else end.thread_status)
    return record


def _in_flight(db: sqlite3.Connection, thread: int) -> str | None:
    row = db.execute(
        f"SELECT id FROM runs INDEXED BY runs_in_flight WHERE {IN_FLIGHT} AND thread = ? "
        "ORDER BY key LIMIT 1",
        (thread,),
    ).fetchone()
    return None if row is None else str(row[0])


def _mark_thread(db: sqlite3.Connection, thread: int, status: ThreadStatus) -> None:
    # Always later than before, so that two changes within one tick of the clock keep their order.
    db.execute(
        "UPDATE threads SET status = ?, updated_at = max(?, updated_at + 1) WHERE key = ?",
        (status, now_us(), thread),
    )


def _find(db: sqlite3.Connection, run_id: str) -> RunRecord:
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    return _record(row)


def _records(rows: sqlite3.Cursor) -> list[RunRecord]:
    return [_record(row) for row in rows]


def _record(row: tuple[Any, ...]) -> RunRecord:
    run_id, status, attempt, owner, error, stop_reason, usage, count, created_at, updated_at, request = row
    return RunRecord(
        id=run_id,
        request=load_request(unpack(request)),
        status=RunStatus(status),
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
        attempt=attempt,
        owner=owner,
        error=error,
        stop_reason=stop_reason,
        usage=load_usage(usage),
        message_count=count,
    )


def _stale(record: RunRecord, attempt: int) -> StaleAttemptError:
    return StaleAttemptError(
        f"attempt {attempt} of run {record.id} is over: it is {record.status} at attempt {record.attempt}"
    )


def _is_orphaned(owner: str | None, has_expired: bool, lock: OwnerLock) -> bool:
    if owner is None or not lock.is_alive(owner):
        return True
    return has_expired and not lock.is_local(owner)
