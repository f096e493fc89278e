"""Open and migrate one SQLite file, its SQL dialect, and its errors as messages for an operator."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deerflow.errors import ConfigError, InvalidInputError, StorageAwayError, StorageError
from deerflow.storage.database import Dialect
from deerflow.storage.encoding import dump_json
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, creation_script, known_revisions
from deerflow.storage.signals import QUEUE
from deerflow.storage.sqlite.text_index import SqliteTextIndex

APPLICATION_ID = 0x44454552
"""Application id of our files (`DEER`)."""
BUSY_SECONDS = 5.0
"""How long one statement waits for another process's lock before it is retried."""
LOCK_SECONDS = 30.0
"""How long a transaction waits for another process that writes."""
WAL_BYTES = 200_000
"""Above this size the write-ahead log is checkpointed into the database."""

_BUSY = (5, 6)
_FULL = 13
_DAMAGED = (
    "the database {path} is damaged or not a SQLite file ({error}): "
    "move it away to start afresh, or restore a backup"
)
_MESSAGES = {
    8: "the database {path} is read-only: make the file and its folder writable",
    11: _DAMAGED,
    _FULL: "no space left for the database {path}: free some disk space and try again",
    14: "the database {path} cannot be opened: check that its folder still exists",
    26: _DAMAGED,
}
"""Messages by SQLite's primary result code."""


def _has_metadata(path: Sequence[str], wanted: Any) -> tuple[str, list[Any]]:
    last = f"m{len(path) - 1}"
    tables = ["json_each(metadata) AS m0"]
    for depth in range(1, len(path)):
        outer = f"m{depth - 1}"
        # Only objects are parsed as JSON: any other value may be arbitrary text.
        inside = f"CASE {outer}.type WHEN 'object' THEN {outer}.value ELSE '{{}}' END"
        tables.append(f"json_each({inside}) AS m{depth}")
    keys = " AND ".join(f"m{depth}.key = ?" for depth in range(len(path)))
    test, bound = _is(last, wanted, name=".".join(path))
    return f"EXISTS (SELECT 1 FROM {', '.join(tables)} WHERE {keys} AND {test})", [*path, *bound]


def _is(found: str, wanted: Any, *, name: str) -> tuple[str, list[Any]]:
    match wanted:
        case None:
            return f"{found}.type = 'null'", []
        case bool():
            return f"{found}.type = ?", ["true" if wanted else "false"]
        case int() | float():
            return f"{found}.type IN ('integer', 'real') AND {found}.value = ?", [wanted]
        case str():
            return f"{found}.type = 'text' AND {found}.value = ?", [wanted]
        case _:
            text = dump_json(wanted, what=f"metadata key '{name}'", is_sorted=True).decode()
            return f"{found}.value = ?", [text]


SQLITE = Dialect(
    clock="((julianday('now') - 2440587.5) * 86400)",
    by_flight="INDEXED BY runs_in_flight",
    shared="",
    locked="",
    trusts_locks=True,
    is_text_of="IN (SELECT value FROM json_each(?))",
    is_number_of="IN (SELECT value FROM json_each(?))",
    position="instr",
    has_metadata=_has_metadata,
    text_index=SqliteTextIndex(),
)


class SqliteDatabase(sqlite3.Connection):
    """A connection as a `Database` for the stores; there is one writer, so no locks are needed."""

    dialect = SQLITE

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.topics: list[str] = []
        """The topics to signal after the next commit."""

    def lock_thread(self, thread_id: str, /) -> None:
        """Do nothing: a write transaction is exclusive."""

    def notify(self, topic: str, /) -> None:
        """Remember the topic until the commit."""
        self.topics.append(topic)

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Signal the queue: every process that opened the file polls for runs itself."""
        self.topics.append(QUEUE)

    def dequeue(self, run_id: str, /) -> None:
        """Do nothing: nothing was queued."""


def create_file(path: Path) -> None:
    """Create the database file for this user only, with its folder; an existing folder stays unchanged."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot open the database {path}: {error.strerror}; make the folder writable "
            "or set database.sqlite_dir to one that is"
        ) from error


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS, is_reader: bool = False) -> SqliteDatabase:
    """Open a connection that may be passed between threads; the caller begins transactions."""
    connection = sqlite3.connect(
        path,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=SqliteDatabase,
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    # A background connection checkpoints the log, so that no commit or reader pays for it.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if is_reader:
        connection.execute("PRAGMA query_only = ON")
    return connection


def migrate(connection: sqlite3.Connection, path: Path, *, folder: Path = FOLDER) -> None:
    """Create or upgrade the tables; refuse a database that is newer or not ours."""
    connection.execute("BEGIN")  # one snapshot for all reads: another process may be migrating right now
    try:
        revision = _revision(connection, path)
    finally:
        connection.execute("COMMIT")
    revisions = known_revisions(folder)
    if revision is None:
        _create_tables(connection, path, folder)
    elif revision not in revisions:
        raise ConfigError(
            f"{path} was written by a newer DeerFlow (schema {revision}, this one knows {revisions[-1]}): "
            "update DeerFlow, or set database.sqlite_dir to another folder"
        )
    elif revision != revisions[-1]:
        from deerflow.storage.migrations.upgrade import upgrade  # noqa: PLC0415 - slow to load

        upgrade("sqlite", connection, folder=folder)


def _revision(connection: sqlite3.Connection, path: Path) -> str | None:
    """Return the revision of our database, None for a new file."""
    if not connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0]:
        return None
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise ConfigError(
            f"{path} is the database of another program or of DeerFlow 2: set database.sqlite_dir "
            "to another folder, or move the file away"
        )
    return str(connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])


def _create_tables(connection: sqlite3.Connection, path: Path, folder: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _revision(connection, path) is None:  # another process may have created them before the lock
            # Not `executescript`: it commits the open transaction.
            for statement in creation_script("sqlite", folder).split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def is_busy(error: BaseException) -> bool:
    """Return whether another connection held the lock for too long."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) in _BUSY


def is_full(error: BaseException) -> bool:
    """Return whether the disk was full."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) == _FULL


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's exceptions into ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        raise explain(error, path) from error


def explain(error: Exception, path: Path) -> Exception:
    """Return the storage exception for a SQLite exception; any other is returned unchanged."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidInputError("the text holds characters that are not valid Unicode (lone surrogates)")
    if isinstance(error, OverflowError):
        return InvalidInputError("a number is larger than 64 bits")
    if not isinstance(error, sqlite3.Error):
        return error
    code = _code(error)
    if code in _BUSY:
        return StorageAwayError(f"the database {path} is locked by another process for too long")
    template = _MESSAGES.get(code, "the database {path} failed: {error}")
    return StorageError(template.format(path=path, error=error))


def _code(error: sqlite3.Error) -> int:
    # The low byte is the primary result code of an extended one.
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
