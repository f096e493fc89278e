"""Connections to one SQLite file, and its failures in words that an operator can act on."""

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
"""How long one statement waits for another process before it is tried again."""
WAL_BYTES = 200_000
"""Past this size the write-ahead log is copied into the database."""

_FULL = 13
_READONLY = 8
_CANTOPEN = 14
_CORRUPT = 11
_NOTADB = 26
_BUSY = (5, 6)


class SqliteDatabase(sqlite3.Connection):
    """A connection as stores know it; there is one writer, so nobody has to be kept out."""

    dialect = SQLITE

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told: list[str] = []
        """The topics to signal after the next commit."""

    def hold(self, thread_id: str, /) -> None:
        """Do nothing: a transaction that writes is alone."""

    def notify(self, topic: str, /) -> None:
        """Remember the topic until the commit."""
        self.told.append(topic)

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Call for somebody: every process on the file looks for runs itself."""
        self.told.append(QUEUE)

    def dequeue(self, run_id: str, /) -> None:
        """Do nothing: nothing was queued."""


def create_file(path: Path) -> None:
    """Make the database file for this user only, with its folder; an existing folder stays as it is."""
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
    """Open a connection that may be handed between threads; transactions are begun by hand."""
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
    # A background connection copies the log: no commit and no reader ever pays for it.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if is_reader:
        connection.execute("PRAGMA query_only = ON")
    return connection


def is_busy(error: BaseException) -> bool:
    """Tell whether another connection held the lock for too long."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) in _BUSY


def is_full(error: BaseException) -> bool:
    """Tell whether there was no room left on the disk."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) == _FULL


@contextmanager
def plain_words(path: Path) -> Iterator[None]:
    """Turn SQLite's exceptions into ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        raise explain(error, path) from error


def explain(error: Exception, path: Path) -> Exception:
    """Return the exception that callers of the storage get for one of SQLite's; others as they are."""
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
    # The low byte is the primary code, whatever the extended one says.
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
