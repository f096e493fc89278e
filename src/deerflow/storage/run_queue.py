"""The runs of a thread: their rows, admission, order, claims, cancellation, end and rollback.

One run of a thread is running at a time. The others wait in the order of admission or, if they have a
start time, of that time. Everything here runs inside a transaction of the engine.
"""

import functools
import logging
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ormsgpack

from deerflow.domain import (
    CancelAction,
    MultitaskStrategy,
    RunRecord,
    RunRequest,
    RunStatus,
    SkillUse,
    ThreadStatus,
    TokenUse,
)
from deerflow.errors import (
    ConflictError,
    NotFoundError,
    RollbackWantedError,
    StaleAttemptError,
    StorageError,
    ThreadBusyError,
)
from deerflow.storage import checkpoint_rows as checkpoints
from deerflow.storage.database import Database
from deerflow.storage.encoding import (
    LATER,
    compress,
    decompress,
    dump_interrupts,
    dump_skills,
    dump_usage,
    later,
    load_request,
    load_skills,
    load_usage,
    now_us,
    time_of,
    without_nul,
)
from deerflow.storage.owners import OwnerLock
from deerflow.storage.signals import owner_topic, run_topic, thread_topic
from deerflow.storage.threads import IN_FLIGHT, ensure_thread, store_assistant_id

logger = logging.getLogger(__name__)

COLUMNS = (
    "runs.id, runs.status, runs.attempt, runs.owner, runs.error, runs.stop_reason, runs.usage, "
    "runs.message_count, runs.created_at, runs.updated_at, runs.request, runs.cancel, runs.releases, "
    "runs.skills"
)
_IS_DUE = "(status = 'running' OR coalesce(start_at, 0) <= ?)"
_ORDER = "coalesce(start_at, created_at), key"
"""Order in which the pending runs of a thread start."""
CANCELLED_BEFORE_START = "cancelled_before_start"
"""Stop reason of a run that was cancelled while it was pending."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Final state of a run."""

    status: RunStatus
    thread_status: ThreadStatus = ThreadStatus.IDLE
    """Status of the thread afterwards; a run that waits for an answer leaves it interrupted."""
    error: str | None = None
    error_in_chinese: str | None = None
    """The error message in Chinese, where there is a translation."""
    error_reason: str | None = None
    """Category of a model failure, such as `rate_limited`."""
    stop_reason: str | None = None
    usage: TokenUse = TokenUse()
    message_count: int = 0
    title: str | None = None
    """The title that the run gave its thread."""
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    """The thread's pending interrupts, by graph task."""
    asks: bool = False
    """The run ended with a question to the user."""
    rolls_back: bool = False
    """Restore the thread's checkpoints, title, status and interrupts from before the run."""


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
    before = _rollback_state(db, thread, request.thread_id) if starts_now else None
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
        _update_thread(db, thread, ThreadStatus.BUSY, title=request.title)
    if start_at is not None or (is_free and not starts_now):
        db.enqueue(run_id, start_at)
    return RunRecord(run_id, request, status, time_of(now), time_of(now), attempt, owner)


def by_idempotency_key(db: Database, request: RunRequest) -> RunRecord | None:
    """Return the run that an earlier request with the same user and idempotency key started."""
    if (token := _idempotency_token(request)) is None:
        return None
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE idempotency = ?", (token,)).fetchone()
    return None if row is None else _record(row)


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
        raise _stale_attempt(run, attempt)
    db.dequeue(run_id)
    if attempt == 0:
        before = _rollback_state(db, thread, run.thread_id)
        db.execute("UPDATE runs SET before = ? WHERE id = ?", (before, run_id))
        _update_thread(db, thread, ThreadStatus.BUSY, title=run.request.title)
    return run


def next_of(db: Database, thread_id: str) -> tuple[str, int] | None:
    """Return id and attempt of the next run of a thread, None while one is running."""
    row = db.execute("SELECT key FROM threads WHERE id = ?", (thread_id,)).fetchone()
    due = [] if row is None else _due_runs(db, row[0])
    if not due or any(status == RunStatus.RUNNING for _, _, status, _, _ in due):
        return None
    return due[0][1], due[0][4]


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
        f"WHERE {IN_FLIGHT} AND {_IS_DUE} ORDER BY {_ORDER}",
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
        if is_free and (run := _readable(row[:-2])) is not None:
            found.append(run)
    return found


def request_cancel(db: Database, run_id: str, action: CancelAction) -> RunRecord:
    """Store a cancel request; end a pending run at once."""
    key, thread = lock_run(db, run_id)
    run = find_run(db, run_id)
    if run.status.is_terminal:
        return run
    if run.status is RunStatus.PENDING:
        _end_pending(db, key, run_id)
        if not _due_runs(db, thread):
            _update_thread(db, thread, _free_status(db, thread))
        elif following := next_of(db, run.thread_id):
            db.enqueue(following[0])
    else:
        _request_cancel(db, key, run.owner, action)
    return find_run(db, run_id)


def _apply_strategy(db: Database, thread: int, request: RunRequest) -> bool:
    """Apply the request's strategy to the runs in flight; return whether the thread is free."""
    if request.after_seconds:
        return False  # it joins the queue at its start time
    due = _due_runs(db, thread)
    if not due:
        return True
    match request.multitask_strategy:
        case MultitaskStrategy.REJECT:
            raise ThreadBusyError(request.thread_id, due[0][1])
        case MultitaskStrategy.INTERRUPT:
            return _cancel_all(db, thread, CancelAction.INTERRUPT)
        case MultitaskStrategy.ROLLBACK:
            return _cancel_all(db, thread, CancelAction.ROLLBACK)
        case MultitaskStrategy.ENQUEUE:
            return False


def _cancel_all(db: Database, thread: int, action: CancelAction) -> bool:
    """End pending runs and request cancellation of the running one; return whether the thread is free."""
    is_free = True
    for key, run_id, status, owner, _ in _due_runs(db, thread):
        if status == RunStatus.RUNNING:
            _request_cancel(db, key, owner, action)
            is_free = False
        else:
            _end_pending(db, key, run_id)
    return is_free


def _request_cancel(db: Database, key: int, owner: str | None, action: CancelAction) -> None:
    # A rollback request is kept, whatever is requested afterwards.
    db.execute(
        "UPDATE runs SET cancel = CASE WHEN cancel = 'rollback' THEN cancel ELSE ? END WHERE key = ?",
        (action, key),
    )
    if owner is not None:
        db.notify(owner_topic(owner))


def _due_runs(db: Database, thread: int) -> list[tuple[int, str, str, str | None, int]]:
    """Return key, id, status, owner and attempt of a thread's runs that run or may start, in their order."""
    return db.execute(
        f"SELECT key, id, status, owner, attempt FROM runs {db.dialect.by_flight} WHERE {IN_FLIGHT} "
        f"AND thread = ? AND {_IS_DUE} ORDER BY {_ORDER}",
        (thread, now_us()),
    ).fetchall()


def _after_others(db: Database, thread: int, now: int) -> int:
    """Return an admission time after all waiting runs, even if the clock was set back."""
    (last,) = db.execute(
        f"SELECT max(created_at) FROM runs {db.dialect.by_flight} "
        f"WHERE {IN_FLIGHT} AND thread = ? AND start_at IS NULL",
        (thread,),
    ).fetchone()
    return now if last is None else max(now, last + 1)


def _idempotency_token(request: RunRequest) -> str | None:
    return f"{request.user_id}\n{request.idempotency_key}" if request.idempotency_key is not None else None


def _is_orphaned(owner: str | None, *, has_expired: bool, lock: OwnerLock, trusts_locks: bool) -> bool:
    if owner is None or not lock.is_alive(owner):
        return True
    return has_expired and not (trusts_locks and lock.is_local(owner))


def find_run(db: Database, run_id: str) -> RunRecord:
    """Return a run; raise `NotFoundError` when it does not exist."""
    row = db.execute(f"SELECT {COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    return _record(row)


def lock_run(db: Database, run_id: str) -> tuple[int, int]:
    """Lock the runs of this run's thread; return the keys of run and thread."""
    row = db.execute(
        "SELECT runs.key, runs.thread, threads.id FROM runs JOIN threads ON threads.key = runs.thread "
        "WHERE runs.id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        raise NotFoundError("run", run_id)
    db.lock_thread(row[2])
    return row[0], row[1]


def records(rows: Iterable[tuple[Any, ...]]) -> list[RunRecord]:
    """Return the runs of rows of `COLUMNS`, without unreadable ones."""
    return [run for row in rows if (run := _readable(row)) is not None]


def _readable(row: tuple[Any, ...]) -> RunRecord | None:
    """Return the run of a row of `COLUMNS`; None for an unreadable one, which must not block the others."""
    try:
        return _record(row)
    except StorageError as error:
        _warn_once(str(error))
        return None


@functools.lru_cache(maxsize=1000)  # once per run: all runs are polled every second
def _warn_once(problem: str) -> None:
    logger.warning("%s; it is skipped", problem)


def _record(row: tuple[Any, ...]) -> RunRecord:
    """Return the run of a row of `COLUMNS`; raise `StorageError` when it is unreadable."""
    (run_id, status, attempt, owner, error, stop_reason, usage) = row[:7]
    (count, created_at, updated_at, request, cancel, releases, skills) = row[7:]
    try:
        return RunRecord(
            id=run_id,
            request=load_request(decompress(request)),
            status=RunStatus(status),
            created_at=time_of(created_at),
            updated_at=time_of(updated_at),
            attempt=attempt,
            owner=owner,
            error=error,
            stop_reason=stop_reason,
            usage=load_usage(usage),
            message_count=count,
            cancel=CancelAction(cancel) if cancel else None,
            releases=releases,
            skills=load_skills(skills),
        )
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as problem:
        raise StorageError(
            f"the row of run {run_id} cannot be read: it is damaged, or of a newer version"
        ) from problem


def _rollback_state(db: Database, thread: int, thread_id: str) -> bytes:
    """Return what a rollback of a run that starts now will restore."""
    title, status = db.execute("SELECT title, status FROM threads WHERE key = ?", (thread,)).fetchone()
    return ormsgpack.packb([checkpoints.rollback_point(db, thread_id), title, status])


def add_skills(db: Database, run_id: str, attempt: int, used: Sequence[SkillUse]) -> None:
    """Add skills to those that a running run used; do nothing when the attempt has ended."""
    row = db.execute(
        f"SELECT key, skills FROM runs WHERE id = ? AND attempt = ? AND {IN_FLIGHT} {db.dialect.locked}",
        (run_id, attempt),
    ).fetchone()
    if row is not None:
        known = {(skill.name, skill.digest): skill for skill in load_skills(row[1])}
        new = {(skill.name, skill.digest): skill for skill in used}
        every = [*known.values(), *(skill for key, skill in new.items() if key not in known)]
        db.execute("UPDATE runs SET skills = ? WHERE key = ?", (dump_skills(every), row[0]))


def settle(db: Database, run_id: str, attempt: int, end: RunEnd) -> RunRecord:
    """Store the final state of a run and free its thread."""
    row = db.execute(
        f"SELECT key, thread, before, cancel FROM runs WHERE id = ? AND attempt = ? AND {IN_FLIGHT} "
        f"{db.dialect.locked}",
        (run_id, attempt),
    ).fetchone()
    if row is None:
        raise _stale_attempt(find_run(db, run_id), attempt)
    key, thread, before, cancel = row
    if cancel == CancelAction.ROLLBACK and not end.rolls_back:
        raise RollbackWantedError(f"run {run_id} is to be rolled back")
    _write_end(db, key, end)
    settled = find_run(db, run_id)
    status, restores = end.thread_status, end.rolls_back and before is not None
    if restores:
        status = _restore(db, thread, settled.thread_id, before)
    elif end.title is not None:
        db.execute("UPDATE threads SET title = ? WHERE key = ?", (without_nul(end.title), thread))
    following = _due_runs(db, thread)
    shown = ThreadStatus.BUSY if following else status
    _update_thread(db, thread, shown, end=None if restores else end)
    if following:
        db.enqueue(following[0][1])
    db.notify(run_topic(run_id))
    return settled


def _end_pending(db: Database, key: int, run_id: str) -> None:
    """End a run that never started."""
    _write_end(db, key, RunEnd(RunStatus.INTERRUPTED, stop_reason=CANCELLED_BEFORE_START))
    db.dequeue(run_id)
    db.notify(run_topic(run_id))


def _write_end(db: Database, key: int, end: RunEnd) -> None:
    db.execute(
        "UPDATE runs SET status = ?, error = ?, stop_reason = ?, usage = ?, message_count = ?, "
        "updated_at = ?, lease_until = NULL, cancel = NULL, before = NULL WHERE key = ?",
        (
            end.status,
            None if end.error is None else without_nul(end.error),
            None if end.stop_reason is None else without_nul(end.stop_reason),
            dump_usage(end.usage),
            end.message_count,
            now_us(),
            key,
        ),
    )
    db.execute("DELETE FROM effects WHERE run = ?", (key,))


def _restore(db: Database, thread: int, thread_id: str, before: bytes) -> ThreadStatus:
    point, title, status = ormsgpack.unpackb(before)
    checkpoints.roll_back(db, thread_id, point)
    db.execute("UPDATE threads SET title = ? WHERE key = ?", (title, thread))
    # A queued run found the thread busy because of another run; that status is not restored.
    return _free_status(db, thread) if status == ThreadStatus.BUSY else ThreadStatus(status)


def _update_thread(
    db: Database, thread: int, status: ThreadStatus, *, end: RunEnd | None = None, title: str | None = None
) -> None:
    """Set a thread's status, with a later `updated_at` than before.

    Args:
        end: Its interrupts become the thread's; None keeps the current ones.
        title: Title for a thread that has none.
    """
    asked = () if end is None else (dump_interrupts(end.interrupts), end.asks)
    named = () if title is None else (without_nul(title),)
    # `LATER` keeps the order of two changes within one clock tick.
    db.execute(
        f"UPDATE threads SET status = ?, updated_at = {LATER}"
        f"{', interrupts = ?, asks = ?' if asked else ''}"
        f"{', title = coalesce(title, ?)' if named else ''} WHERE key = ?",
        (status, *later(), *asked, *named, thread),
    )


def _free_status(db: Database, thread: int) -> ThreadStatus:
    """Return the status of a thread without a busy run: interrupted while an interrupt is pending."""
    status, asked = db.execute("SELECT status, interrupts FROM threads WHERE key = ?", (thread,)).fetchone()
    if status != ThreadStatus.BUSY:
        return ThreadStatus(status)
    return ThreadStatus.IDLE if asked is None else ThreadStatus.INTERRUPTED


def _stale_attempt(run: RunRecord, attempt: int) -> StaleAttemptError:
    """Return the error for a worker whose attempt has ended."""
    return StaleAttemptError(
        f"attempt {attempt} of run {run.id} is over: it is {run.status} at attempt {run.attempt}"
    )
