"""Connect to one SQLite file, and turn its errors into messages that an operator can act on."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deerflow.errors import ConfigError, InvalidInputError, StorageAwayError, StorageError
from deerflow.storage.signals import QUEUE
from deerflow.storage.sqlite.dialect import SQLITE

BUSY_SECONDS = 5.0
"""How long one statement waits for another process's lock before it is retried."""
WAL_BYTES = 200_000
"""Above this size the write-ahead log is checkpointed into the database."""

_FULL = 13
_READONLY = 8
_CANTOPEN = 14
_CORRUPT = 11
_NOTADB = 26
_BUSY = (5, 6)


class SqliteDatabase(sqlite3.Connection):
    """A connection as a `Database` for the stores; there is one writer, so no locks are needed."""

    dialect = SQLITE

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told: list[str] = []
        """The topics to signal after the next commit."""

    def hold(self, thread_id: str, /) -> None:
        """Do nothing: a write transaction is exclusive."""

    def notify(self, topic: str, /) -> None:
        """Remember the topic until the commit."""
        self.told.append(topic)

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Signal the queue: every process that opened the file polls for runs itself."""
        self.told.append(QUEUE)

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


def is_busy(error: BaseException) -> bool:
    """Return whether another connection held the lock for too long."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) in _BUSY


def is_full(error: BaseException) -> bool:
    """Return whether the disk was full."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) == _FULL


@contextmanager
def plain_words(path: Path) -> Iterator[None]:
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
    match _code(error):
        case code if code == _FULL:
            return StorageError(f"no space left for the database {path}: free some disk space and try again")
        case code if code == _READONLY:
            return StorageError(f"the database {path} is read-only: make the file and its folder writable")
        case code if code in (_CORRUPT, _NOTADB):
            return StorageError(
                f"the database {path} is damaged or not a SQLite file ({error}): "
                "move it away to start afresh, or restore a backup"
            )
        case code if code in _BUSY:
            return StorageAwayError(f"the database {path} is locked by another process for too long")
        case code if code == _CANTOPEN:
            return StorageError(f"the database {path} cannot be opened: check that its folder still exists")
    return StorageError(f"the database {path} failed: {error}")


def _code(error: sqlite3.Error) -> int:
    # The low byte is the primary result code of an extended one.
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
