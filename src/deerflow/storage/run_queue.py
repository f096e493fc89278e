"""The queue of a thread's runs: admission, order, claims and cancellation.

One run of a thread is running at a time. The others wait in the order of admission or, if they have a
start time, of that time.
"""

from deerflow.domain import CancelAction, MultitaskStrategy, RunRecord, RunRequest, RunStatus, ThreadStatus
from deerflow.errors import ConflictError, NotFoundError, ThreadBusyError
from deerflow.storage.database import Database
from deerflow.storage.encoding import compress, now_us, time_of
from deerflow.storage.owners import OwnerLock
from deerflow.storage.run_rows import (
    COLUMNS,
    IN_FLIGHT,
    ORDER,
    end_pending,
    find_run,
    free_status,
    lock_run,
    readable,
    record,
    rollback_state,
    stale_attempt,
    update_thread,
)
from deerflow.storage.signals import owner_topic, thread_topic
from deerflow.storage.threads import ensure_thread, store_assistant_id


def create(
    db: Database, run_id: str, request: RunRequest, body: bytes, owner: str | None, lease_seconds: float
) -> RunRecord:
    """Admit a run according to its multitask strategy."""
    db.lock_thread(request.thread_id)
    if known := by_idempotency_key(db, request):
        return known
    thread, user_id = ensure_thread(db, request.thread_id, request.user_id, "{}")
    if user_id != request.user_id:
        raise NotFoundError("thread", request.thread_id)
    is_free = _apply_strategy(db, thread, request)
    store_assistant_id(db, thread, request.assistant_id)
    now = now_us()
    if not is_free and not request.after_seconds:  # a run with a start time is ordered by that time
        now = _after_others(db, thread, now)
    start_at = now + int(request.after_seconds * 1_000_000) if request.after_seconds else None
    starts_now = owner is not None and is_free and start_at is None
    status, attempt = (RunStatus.RUNNING, 1) if starts_now else (RunStatus.PENDING, 0)
    owner = owner if starts_now else None
    before = rollback_state(db, thread, request.thread_id) if starts_now else None
    made = db.execute(
        "INSERT INTO runs (id, thread, status, attempt, owner, lease_until, message_count, created_at, "
        "updated_at, start_at, idempotency, before, request) "
        f"VALUES (?, ?, ?, ?, ?, {db.dialect.clock} + ?, 0, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            *(run_id, thread, status, attempt, owner, lease_seconds),
            *(now, now, start_at, _idempotency_token(request), before, compress(body)),
        ),
    )
    if not made.rowcount:
        # The same request on another thread may have been admitted a moment earlier.
        if known := by_idempotency_key(db, request):
            return known
        raise ConflictError(f"run id '{run_id}' is taken")
    db.notify(thread_topic(request.thread_id))
    if start_at is None:
        update_thread(db, thread, ThreadStatus.BUSY, title=request.title)
    if start_at is not None or (is_free and not starts_now):
        db.enqueue(run_id, start_at)
    return RunRecord(run_id, request, status, time_of(now), time_of(now), attempt, owner)


def by_idempotency_key(db: Database, request: RunRequest) -> RunRecord | None:
    """Return the run that an earlier request with the same user and idempotency key started."""
    if (token := _idempotency_token(request)) is None:
        return None
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE idempotency = ?", (token,)).fetchone()
    return None if row is None else record(row)


def claim(db: Database, run_id: str, owner: str, attempt: int, lease_seconds: float) -> RunRecord:
    """Claim a run that is still at `attempt`, unless another one of its thread is running."""
    _, thread = lock_run(db, run_id)
    # Lock the row before the update: pending writes of the previous attempt finish first.
    changed = db.execute(
        f"UPDATE runs SET owner = ?, status = 'running', attempt = attempt + 1, "
        f"lease_until = {db.dialect.clock} + ?, updated_at = ? "
        f"WHERE key = (SELECT key FROM runs WHERE id = ? {db.dialect.locked}) AND attempt = ? "
        f"AND {IN_FLIGHT} AND NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.thread = runs.thread "
        "AND other.status = 'running' AND other.key != runs.key)",
        (owner, lease_seconds, now_us(), run_id, attempt),
    ).rowcount
    run = find_run(db, run_id)
    if not changed:
        raise stale_attempt(run, attempt)
    db.dequeue(run_id)
    if attempt == 0:
        before = rollback_state(db, thread, run.thread_id)
        db.execute("UPDATE runs SET before = ? WHERE id = ?", (before, run_id))
        update_thread(db, thread, ThreadStatus.BUSY, title=run.request.title)
    return run


def next_of(db: Database, thread_id: str) -> tuple[str, int] | None:
    """Return id and attempt of the next run of a thread."""
    row = db.execute("SELECT key FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        return None
    due: list[tuple[str, int]] = []
    for run_id, attempt, status, is_due in db.execute(
        f"SELECT id, attempt, status, coalesce(start_at, 0) <= ? FROM runs {db.dialect.by_flight} "
        f"WHERE {IN_FLIGHT} AND thread = ? ORDER BY {ORDER}",
        (now_us(), row[0]),
    ):
        if status == RunStatus.RUNNING:
            return None
        if is_due:
            due.append((run_id, attempt))
    return due[0] if due else None


def claim_next(db: Database, thread_id: str, owner: str, lease_seconds: float) -> RunRecord | None:
    """Claim the next run of a thread; find and claim it in one transaction."""
    db.lock_thread(thread_id)
    found = next_of(db, thread_id)
    return None if found is None else claim(db, found[0], owner, found[1], lease_seconds)


def release(db: Database, run_id: str, attempt: int) -> None:
    """Release a running run; do nothing when the attempt has ended."""
    try:
        lock_run(db, run_id)
    except NotFoundError:
        return
    released = db.execute(
        "UPDATE runs SET owner = NULL, lease_until = NULL, releases = releases + 1 "
        "WHERE id = ? AND attempt = ? AND status = 'running' AND owner IS NOT NULL",
        (run_id, attempt),
    )
    if released.rowcount:
        db.enqueue(run_id)


def orphans(db: Database, lock: OwnerLock, limit: int | None) -> list[RunRecord]:
    """Return the runs that should be claimed, oldest first."""
    rows = db.execute(
        f"SELECT {COLUMNS}, thread, coalesce(lease_until, 0) < {db.dialect.clock} FROM runs "
        f"WHERE {IN_FLIGHT} AND (status = 'running' OR coalesce(start_at, 0) <= ?) ORDER BY {ORDER}",
        (now_us(),),
    ).fetchall()
    taken = {row[-2] for row in rows if row[1] == RunStatus.RUNNING}
    trusts_locks = db.dialect.trusts_locks
    found: list[RunRecord] = []
    for row in rows:
        if len(found) == limit:
            break
        status, owner = row[1], row[3]
        thread, has_expired = row[-2:]
        if status == RunStatus.RUNNING:
            is_free = _is_orphaned(owner, has_expired=bool(has_expired), lock=lock, trusts_locks=trusts_locks)
        elif is_free := thread not in taken:
            taken.add(thread)
        if is_free and (run := readable(row[:-2])) is not None:
            found.append(run)
    return found


def request_cancel(db: Database, run_id: str, action: CancelAction) -> RunRecord:
    """Store a cancel request; end a pending run at once."""
    key, thread = lock_run(db, run_id)
    run = find_run(db, run_id)
    if run.status.is_terminal:
        return run
    if run.status is RunStatus.PENDING:
        end_pending(db, key, run_id)
        if _blocking(db, thread) is None:
            update_thread(db, thread, free_status(db, thread))
        elif following := next_of(db, run.thread_id):
            db.enqueue(following[0])
    else:
        _request_cancel(db, key, run.owner, action)
    return find_run(db, run_id)


def _apply_strategy(db: Database, thread: int, request: RunRequest) -> bool:
    """Apply the request's strategy to the runs in flight; return whether the thread is free."""
    if request.after_seconds:
        return False  # it joins the queue at its start time
    blocking = _blocking(db, thread)
    if blocking is None:
        return True
    match request.multitask_strategy:
        case MultitaskStrategy.REJECT:
            raise ThreadBusyError(request.thread_id, blocking)
        case MultitaskStrategy.INTERRUPT:
            return _cancel_all(db, thread, CancelAction.INTERRUPT)
        case MultitaskStrategy.ROLLBACK:
            return _cancel_all(db, thread, CancelAction.ROLLBACK)
        case MultitaskStrategy.ENQUEUE:
            return False


def _cancel_all(db: Database, thread: int, action: CancelAction) -> bool:
    """End pending runs and request cancellation of the running one; return whether the thread is free."""
    is_free = True
    for key, run_id, status, owner in db.execute(
        f"SELECT key, id, status, owner FROM runs {db.dialect.by_flight} WHERE {IN_FLIGHT} AND thread = ? "
        "AND coalesce(start_at, 0) <= ?",
        (thread, now_us()),
    ).fetchall():
        if status == RunStatus.RUNNING:
            _request_cancel(db, key, owner, action)
            is_free = False
        else:
            end_pending(db, key, run_id)
    return is_free


def _request_cancel(db: Database, key: int, owner: str | None, action: CancelAction) -> None:
    # A rollback request is kept, whatever is requested afterwards.
    db.execute(
        "UPDATE runs SET cancel = CASE WHEN cancel = 'rollback' THEN cancel ELSE ? END WHERE key = ?",
        (action, key),
    )
    if owner is not None:
        db.notify(owner_topic(owner))


def _blocking(db: Database, thread: int) -> str | None:
    """Return the run that a new one has to wait for, if any."""
    row = db.execute(
        f"SELECT id FROM runs {db.dialect.by_flight} WHERE {IN_FLIGHT} AND thread = ? "
        "AND coalesce(start_at, 0) <= ? ORDER BY key LIMIT 1",
        (thread, now_us()),
    ).fetchone()
    return None if row is None else str(row[0])


def _after_others(db: Database, thread: int, now: int) -> int:
    """Return an admission time after all waiting runs, even if the clock was set back."""
    (last,) = db.execute(
        f"SELECT max(created_at) FROM runs {db.dialect.by_flight} "
        f"WHERE {IN_FLIGHT} AND thread = ? AND start_at IS NULL",
        (thread,),
    ).fetchone()
    return now if last is None else max(now, last + 1)


def _idempotency_token(request: RunRequest) -> str | None:
    if request.idempotency_key is None:
        return None
    return f"{request.user_id}\n{request.idempotency_key}"


def _is_orphaned(owner: str | None, *, has_expired: bool, lock: OwnerLock, trusts_locks: bool) -> bool:
    if owner is None or not lock.is_alive(owner):
        return True
    return has_expired and not (trusts_locks and lock.is_local(owner))
