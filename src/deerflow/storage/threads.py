"""Store of thread rows, and their search query."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from deerflow.domain import LEAD_AGENT, Thread, ThreadStatus, is_thread_id
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.storage.checkpoint_rows import delete_chains
from deerflow.storage.database import Database, Dialect, Engine
from deerflow.storage.encoding import (
    LATER,
    dump_interrupts,
    dump_json,
    later,
    now_us,
    time_of,
    without_nul,
)
from deerflow.storage.events import delete_events, delete_fragments
from deerflow.storage.signals import run_topic

IN_FLIGHT = "status IN ('pending', 'running')"
"""Condition on runs: the thread is busy with them."""
COLUMNS = "id, user_id, status, title, metadata, created_at, updated_at, interrupts, asks"
READ = (
    f"{COLUMNS}, CASE WHEN status = 'error' THEN (SELECT error FROM runs WHERE runs.thread = threads.key "
    "AND runs.error IS NOT NULL ORDER BY runs.key DESC LIMIT 1) END"
)
"""The columns of a thread, plus the error of its last failed run if its status is `error`."""
MAX_FILTERS = 50
MAX_KEY_CHARS = 256
_DEEPEST = 4
"""Maximum depth at which nested objects are compared by key; deeper ones must be equal."""
_BUSY = f"SELECT 1 FROM runs WHERE {IN_FLIGHT} AND thread = ? LIMIT 1"
_ORDER = {"created_at": "created_at", "updated_at": "updated_at", "thread_id": "id", "status": "status"}


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Filter, order and page of a thread search."""

    user_id: str | None
    """The owner of the threads; None: all users."""
    metadata: Mapping[str, Any] | None = None
    """Only threads whose metadata has all of these keys with equal values, including nested objects."""
    status: ThreadStatus | None = None
    ids: Sequence[str] | None = None
    limit: int = 100
    offset: int = 0
    sort_by: Literal["created_at", "updated_at", "thread_id", "status"] = "updated_at"
    descending: bool = True


class ThreadStore:
    """Thread rows, as lists show them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, thread_id: str, user_id: str, metadata: Mapping[str, Any], *, is_new: bool = False
    ) -> Thread:
        """Return the thread, created now or earlier; raise `ConflictError` for another user's id.

        Args:
            is_new: Raise `ConflictError` for an existing thread too.
        """
        text = _metadata_text(metadata)

        def work(db: Database) -> Thread:
            if is_new:
                db.lock_thread(thread_id)  # of two concurrent creations the second one finds the thread
                if db.execute("SELECT 1 FROM threads WHERE id = ?", (thread_id,)).fetchone() is not None:
                    raise ConflictError(f"thread '{thread_id}' exists already")
            key, owner = ensure_thread(db, thread_id, user_id, text)
            if owner != user_id:
                raise ConflictError(f"thread id '{thread_id}' is taken: choose another one")
            return thread_at(db, key)

        return await self._engine.write(work)

    async def get(self, thread_id: str, user_id: str | None = None) -> Thread:
        """Return a thread; raise `NotFoundError` when it does not exist or belongs to another user."""
        return await self._engine.peek(lambda db: _find(db, thread_id, user_id))

    async def search(self, query: ThreadQuery) -> list[Thread]:
        sql, values = search_statement(query, self._engine.dialect)
        return await self._engine.read(lambda db: [_thread(row) for row in db.execute(sql, values)])

    async def count(self, query: ThreadQuery) -> int:
        where, values = _conditions(query, self._engine.dialect)
        sql = f"SELECT count(*) FROM threads WHERE {where}"
        return await self._engine.read(lambda db: int(db.execute(sql, values).fetchone()[0]))

    async def update(
        self,
        thread_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        status: ThreadStatus | None = None,
        interrupts: Mapping[str, Any] | None = None,
        asks: bool | None = None,
        touch: bool = True,
    ) -> Thread:
        """Merge metadata, set title, status, interrupts and `asks`; `touch` updates `updated_at`."""
        added = orjson.loads(_metadata_text(metadata or {}))

        def work(db: Database) -> Thread:
            old = _find(db, thread_id, None, db.dialect.locked)
            asked = None if interrupts is None else (dump_interrupts(interrupts),)
            db.execute(
                "UPDATE threads SET metadata = ?, title = ?, status = ?, asks = coalesce(?, asks), "
                f"{'' if asked is None else 'interrupts = ?, '}"
                f"updated_at = {LATER if touch else 'updated_at'} WHERE id = ?",
                (
                    _metadata_text({**old.metadata, **added}),
                    old.title if title is None else without_nul(title),
                    status or old.status,
                    asks,
                    *(asked or ()),
                    *(later() if touch else ()),
                    thread_id,
                ),
            )
            return _find(db, thread_id, None)

        return await self._engine.write(work)

    async def delete(self, thread_id: str, *, unless_busy: bool = False) -> None:
        """Delete the thread with its runs, events, fragments and checkpoints (sub-threads too).

        Args:
            unless_busy: Raise `ConflictError` when one of its runs is pending or running.
        """

        def work(db: Database) -> None:
            db.lock_thread(thread_id)
            row = db.execute("SELECT key FROM threads WHERE id = ?", (thread_id,)).fetchone()
            if row is None:
                raise NotFoundError("thread", thread_id)
            if unless_busy and db.execute(_BUSY, row).fetchone() is not None:
                raise ConflictError(f"thread {thread_id} has a run in flight; cancel it first")
            delete_thread_rows(db, row[0])
            delete_chains(db, thread_id)

        await self._engine.write(work)


def search_statement(query: ThreadQuery, dialect: Dialect) -> tuple[str, list[Any]]:
    """Return a search statement with its parameters; raise `InvalidInputError` for an invalid query."""
    where, values = _conditions(query, dialect)
    if query.sort_by not in _ORDER:
        raise InvalidInputError(f"sort_by '{query.sort_by}' is unknown: use one of {', '.join(_ORDER)}")
    if query.limit < 0 or query.offset < 0:
        raise InvalidInputError("limit and offset of a search cannot be negative")
    direction = "DESC" if query.descending else "ASC"
    sql = (
        f"SELECT {READ} FROM threads WHERE {where} "
        f"ORDER BY {_ORDER[query.sort_by]} {direction}, key {direction} LIMIT ? OFFSET ?"
    )
    return sql, [*values, query.limit, query.offset]


def ensure_thread(db: Database, thread_id: str, user_id: str, metadata: str) -> tuple[int, str]:
    """Return the key and the user of a thread, created if needed."""
    row = db.execute("SELECT key, user_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is not None:
        return row[0], row[1]
    if not is_thread_id(thread_id):
        raise InvalidInputError(
            f"thread id '{thread_id[:80]}' cannot be used: 1 to 64 letters, digits, '-' and '_'"
        )
    now = now_us()
    made = db.execute(
        f"INSERT INTO threads ({COLUMNS}) VALUES (?, ?, ?, NULL, ?, ?, ?, NULL, FALSE) "
        "ON CONFLICT (id) DO NOTHING RETURNING key",
        (thread_id, user_id, ThreadStatus.IDLE, metadata, now, now),
    ).fetchone()
    if made is None:  # another process created it in between
        return ensure_thread(db, thread_id, user_id, metadata)
    return made[0], user_id


def store_assistant_id(db: Database, key: int, assistant_id: str) -> None:
    """Store graph and assistant ids in a thread's metadata, where LangGraph's clients look for them."""
    ids = {"graph_id": LEAD_AGENT, "assistant_id": assistant_id}
    (text,) = db.execute("SELECT metadata FROM threads WHERE key = ?", (key,)).fetchone()
    metadata = orjson.loads(text)
    if any(metadata.get(name) != value for name, value in ids.items()):
        db.execute(
            "UPDATE threads SET metadata = ? WHERE key = ?", (_metadata_text({**metadata, **ids}), key)
        )


def thread_at(db: Database, key: int) -> Thread:
    """Return the thread with this key."""
    return _thread(db.execute(f"SELECT {READ} FROM threads WHERE key = ?", (key,)).fetchone())


def delete_thread_rows(db: Database, key: int) -> None:
    """Delete a thread with its runs, events and fragments."""
    runs = db.execute(f"SELECT key, id FROM runs WHERE thread = ? {db.dialect.locked}", (key,)).fetchall()
    for run, run_id in runs:
        delete_events(db, run)
        db.execute("DELETE FROM effects WHERE run = ?", (run,))
        db.dequeue(run_id)
        db.notify(run_topic(run_id))
    db.execute("DELETE FROM runs WHERE thread = ?", (key,))
    delete_fragments(db, key)
    db.execute("DELETE FROM threads WHERE key = ?", (key,))


def _find(db: Database, thread_id: str, user_id: str | None, lock: str = "") -> Thread:
    row = db.execute(f"SELECT {READ} FROM threads WHERE id = ? {lock}", (thread_id,)).fetchone()
    if row is None or user_id not in (None, row[1]):
        raise NotFoundError("thread", thread_id)
    return _thread(row)


def _thread(row: tuple[Any, ...]) -> Thread:
    thread_id, user_id, status, title, metadata, created_at, updated_at, interrupts, asks, error = row
    return Thread(
        id=thread_id,
        user_id=user_id,
        status=ThreadStatus(status),
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
        metadata=orjson.loads(metadata),
        title=title,
        # A resumed thread is busy: its interrupts stay stored until that run ends.
        interrupts=orjson.loads(interrupts) if interrupts and status == ThreadStatus.INTERRUPTED else {},
        asks=bool(asks) and status == ThreadStatus.IDLE,
        error=error,
    )


def _metadata_text(metadata: Mapping[str, Any]) -> str:
    return dump_json(dict(metadata), what="the thread's metadata", is_sorted=True).decode()


def _conditions(query: ThreadQuery, dialect: Dialect) -> tuple[str, list[Any]]:
    # One JSON parameter instead of one placeholder per id: the statement is the same for any number.
    ids = None if query.ids is None else dump_json(list(query.ids), what="ids").decode()
    wanted = {"user_id = ?": query.user_id, "status = ?": query.status, f"id {dialect.is_text_of}": ids}
    return search_conditions(wanted, query.metadata, dialect)


def search_conditions(
    wanted: Mapping[str, Any], metadata: Mapping[str, Any] | None, dialect: Dialect
) -> tuple[str, list[Any]]:
    """Return the SQL condition of a search and its parameters.

    Args:
        wanted: Parameters by condition; None omits the condition.
        metadata: Keys that a row's metadata must have with equal values. An object matches when it has the
            wanted keys, among others; a list matches only when it is equal.
    """
    where = [condition for condition, value in wanted.items() if value is not None]
    values = [value for value in wanted.values() if value is not None]
    leaves = list(_leaves(metadata or {}))
    if len(leaves) > MAX_FILTERS:
        raise InvalidInputError(f"a search takes at most {MAX_FILTERS} metadata keys")
    for path, leaf in leaves:
        condition, bound = dialect.has_metadata(path, leaf)
        where.append(condition)
        values += bound
    return " AND ".join(where) or "1 = 1", values


def _leaves(metadata: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, wanted in metadata.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_KEY_CHARS or "\x00" in name:
            raise InvalidInputError(
                f"metadata key {name!r:.80} cannot be searched for: keys are texts of 1 to {MAX_KEY_CHARS} "
                "characters without null bytes"
            )
        if isinstance(wanted, Mapping) and wanted and len(path) < _DEEPEST:
            yield from _leaves(wanted, (*path, name))
        else:
            yield (*path, name), wanted
