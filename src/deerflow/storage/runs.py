"""Store of runs, their owners, leases, attempts and outcomes."""

from collections.abc import Sequence

from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, SkillUse
from deerflow.errors import ConflictError, NotFoundError
from deerflow.storage import run_queue as queue
from deerflow.storage.database import Database, Engine
from deerflow.storage.encoding import dump_request
from deerflow.storage.events import LogBatch, append_batch, check_numbers, delete_events
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock
from deerflow.storage.run_queue import COLUMNS, RunEnd, find_run, lock_run, records
from deerflow.storage.threads import IN_FLIGHT

_OF_THREAD = (
    "FROM runs JOIN threads ON threads.key = runs.thread WHERE threads.id = ? "
    "AND (CAST(? AS TEXT) IS NULL OR runs.status = ?)"
)


class RunStore:
    """Runs and their owners. Every write of a worker carries its attempt and fails when it is stale."""

    def __init__(self, engine: Engine, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Store runs in this database.

        Args:
            lease_seconds: How long a run keeps its owner without a heartbeat.
        """
        self._engine = engine
        self._lease_seconds = float(lease_seconds)

    async def create(self, run_id: str, request: RunRequest, *, owner: str | None = None) -> RunRecord:
        """Admit a run in one transaction: create the thread if needed, mark it busy, store the row.

        A thread without a title gets the request's, which a rollback removes again.
        With an `owner`, a run whose thread is free is claimed at once and returned as `running` with
        attempt 1. Otherwise it is returned as `pending` and queued. If the thread has runs in flight, the
        multitask strategy decides:

        - `reject` raises `ThreadBusyError`;
        - `enqueue` queues the run behind them;
        - `interrupt` and `rollback` request that cancellation of the running one, end the pending ones, and
          queue the run.

        A run with `after_seconds` blocks no other run before its start time. An `idempotency_key` that the
        user sent before returns the run of that request, whose id then differs from `run_id`.
        """
        body, lease = dump_request(request), self._lease_seconds
        return await self._engine.write(
            lambda db: queue.create(db, run_id, request, body, owner, lease), weight=len(body)
        )

    async def by_idempotency_key(self, request: RunRequest) -> RunRecord | None:
        """Return the run that an earlier request with the same user and `idempotency_key` started, if any."""
        return await self._engine.peek(lambda db: queue.by_idempotency_key(db, request))

    async def get(self, run_id: str, thread_id: str | None = None) -> RunRecord:
        def work(db: Database) -> RunRecord:
            record = find_run(db, run_id)
            if thread_id not in (None, record.thread_id):
                raise NotFoundError("run", run_id)
            return record

        return await self._engine.peek(work)

    async def of_thread(
        self, thread_id: str, *, status: RunStatus | None = None, limit: int = 100, offset: int = 0
    ) -> list[RunRecord]:
        """Return a thread's runs, newest first."""
        sql = f"SELECT {COLUMNS} {_OF_THREAD} ORDER BY runs.key DESC LIMIT ? OFFSET ?"
        values = (thread_id, status, status, max(limit, 0), max(offset, 0))
        return await self._engine.read(lambda db: records(db.execute(sql, values)))

    async def count_of_thread(self, thread_id: str, *, status: RunStatus | None = None) -> int:
        """Return the number of a thread's runs."""
        sql, values = f"SELECT count(*) {_OF_THREAD}", (thread_id, status, status)
        return await self._engine.read(lambda db: int(db.execute(sql, values).fetchone()[0]))

    async def active(self) -> list[RunRecord]:
        """Return all pending and running runs, oldest first."""
        sql = f"SELECT {COLUMNS} FROM runs WHERE {IN_FLIGHT} ORDER BY key"
        return await self._engine.read(lambda db: records(db.execute(sql)))

    async def claim(self, run_id: str, *, owner: str, attempt: int) -> RunRecord:
        """Claim a run that is still at `attempt`: set owner, `running` and `attempt + 1`.

        `StaleAttemptError` when another owner claimed it first, another run of the thread is running, or the
        run has ended. The first claim saves the state that a rollback restores.
        """
        lease = self._lease_seconds
        return await self._engine.write(lambda db: queue.claim(db, run_id, owner, attempt, lease))

    async def claim_next(self, thread_id: str, *, owner: str) -> RunRecord | None:
        """Claim the next run of a thread; None when there is none or one is running."""
        # A read is cheap, and usually no run is waiting.
        if await self._engine.peek(lambda db: queue.next_of(db, thread_id)) is None:
            return None
        lease = self._lease_seconds
        return await self._engine.write(lambda db: queue.claim_next(db, thread_id, owner, lease))

    async def release(self, run_id: str, *, attempt: int) -> None:
        """Release a running run so that any owner may claim it; a stale attempt changes nothing."""
        await self._engine.write(lambda db: queue.release(db, run_id, attempt))

    async def add_skills(self, run_id: str, *, attempt: int, used: Sequence[SkillUse]) -> None:
        """Add skills to those that a running run used, each package once; a stale attempt changes nothing."""
        await self._engine.write(lambda db: queue.add_skills(db, run_id, attempt, used))

    async def settle(
        self, run_id: str, *, attempt: int, end: RunEnd, last: LogBatch | None = None
    ) -> RunRecord:
        """Store the final state and free the thread; raise `StaleAttemptError` when not the owner any more.

        `last` holds the run's last events, stored in the same transaction, so that a log ends if and
        only if its run has ended. If a rollback was requested, any other end raises
        `RollbackWantedError`.
        """
        if last is not None:
            check_numbers(last)

        def work(db: Database) -> RunRecord:
            lock_run(db, run_id)
            if last is not None:
                append_batch(db, last)
            return queue.settle(db, run_id, attempt, end)

        return await self._engine.write(work)

    async def heartbeat(self, owner: str) -> dict[str, int]:
        """Extend the leases of the owner's runs by the database's clock; return the attempts by run."""

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

    async def orphans(self, lock: OwnerLock, *, limit: int | None = None) -> list[RunRecord]:
        """Return the runs in flight that have no live owner, oldest first, up to `limit`.

        These are: a pending run that is next in its thread, or a running one without an owner, with an owner
        on this machine whose lock is free, or with an expired lease. On SQLite, where owners are normally on
        this machine, the lease of an owner that holds its lock is ignored.
        """
        # In a reader thread: checking locks opens files.
        return await self._engine.read(lambda db: queue.orphans(db, lock, limit))

    async def request_cancel(self, run_id: str, action: CancelAction) -> RunRecord:
        """Store a cancel request for the owner, on whichever machine it is; a pending run ends at once."""
        return await self._engine.write(lambda db: queue.request_cancel(db, run_id, action))

    async def cancel_requests(self, owner: str) -> dict[str, CancelAction]:
        """Return the cancel requests for the running runs of `owner`."""
        sql = f"SELECT id, cancel FROM runs WHERE owner = ? AND cancel IS NOT NULL AND {IN_FLIGHT}"
        rows = await self._engine.peek(lambda db: db.execute(sql, (owner,)).fetchall())
        return {run_id: CancelAction(action) for run_id, action in rows}

    async def delete(self, run_id: str) -> None:
        """Delete a run that has ended, with its events."""

        def work(db: Database) -> None:
            key, _ = lock_run(db, run_id)
            if not find_run(db, run_id).status.is_terminal:
                raise ConflictError(f"run {run_id} is still in flight: cancel it first")
            delete_events(db, key)
            db.execute("DELETE FROM runs WHERE key = ?", (key,))

        await self._engine.write(work)
