"""SQLite engine for any number of event loops: one writer, and readers in parallel.

Point reads run on the calling thread: 15 µs, where the hop to another thread costs 80 µs on an idle
loop and over a millisecond on a busy one. Reads that scan go to reader threads. A background connection
checkpoints the write-ahead log into the database.
"""

import asyncio
import logging
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from typing_extensions import override

from deerflow.errors import ConfigError, StorageError
from deerflow.storage.database import Database
from deerflow.storage.reader_pool import PooledEngine
from deerflow.storage.signals import Signals
from deerflow.storage.sqlite.connect import (
    WAL_BYTES,
    SqliteDatabase,
    connect,
    create_file,
    is_busy,
    plain_words,
)
from deerflow.storage.sqlite.dialect import SQLITE
from deerflow.storage.sqlite.migrations import migrate
from deerflow.storage.sqlite.writer import PATIENCE_SECONDS, Writer

logger = logging.getLogger(__name__)

READERS = 3
T = TypeVar("T")


class SqliteEngine(PooledEngine):
    """Writes and reads one database file; closing it finishes every write."""

    dialect = SQLITE

    def __init__(self, path: Path, *, is_temporary: bool = False) -> None:
        """Open the file, blocking; `SqliteEngine.open` does it in a thread."""
        super().__init__(str(path), readers=READERS)
        self.path = path
        self.signals = Signals()
        self._is_temporary = is_temporary
        create_file(path)
        try:
            with plain_words(path):
                self._connection = _prepare(path, is_temporary=is_temporary)
        except StorageError as error:
            raise ConfigError(str(error)) from error
        self._near = connect(path, busy_seconds=0, is_reader=True)
        self._near_lock = threading.Lock()
        self._opened: list[SqliteDatabase] = []
        self._copier = _Copier(path)
        self._writer = Writer(
            path, self._connection, committed=self._committed, may_sync=self._copier.may_restart
        )

    @classmethod
    async def open(cls, path: Path) -> "SqliteEngine":
        """Open a database file; create or upgrade it if needed."""
        return await asyncio.to_thread(cls, path)

    @classmethod
    async def open_temporary(cls) -> "SqliteEngine":
        """Open a database that is deleted when it is closed."""

        def made() -> SqliteEngine:
            return cls(Path(tempfile.mkdtemp(prefix="deerflow-")) / "deerflow.db", is_temporary=True)

        return await asyncio.to_thread(made)

    @override
    async def write(
        self, work: Callable[[Database], T], *, may_wait: bool = False, weight: int | None = None
    ) -> T:
        return cast(T, await self._writer.ask(work, may_wait=may_wait, weight=weight))

    @override
    async def peek(self, work: Callable[[Database], T]) -> T:
        try:
            return self._peek(work)
        except _NearIsTaken:
            return await self.read(work)

    @override
    def read_blocking(self, work: Callable[[Database], T]) -> T:
        try:
            return self._peek(work)
        except _NearIsTaken:
            return self._far(work).result()

    def _committed(self, db: SqliteDatabase, can_wait: bool) -> None:
        if db.told:
            self.signals.notify(db.told)
            db.told.clear()
        self._copier.nudge(db if can_wait else None)

    @override
    def _close(self) -> None:
        self._is_closed = True
        self._writer.close()
        self._copier.close()
        self._pool.shutdown(wait=True)
        with self._near_lock:
            for connection in (*self._opened, self._near, self._connection):
                connection.close()
        if self._is_temporary:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _peek(self, work: Callable[[Database], T]) -> T:
        if not self._near_lock.acquire(blocking=False):
            raise _NearIsTaken
        try:
            with plain_words(self.path):
                return _in_snapshot(self._near, work)
        except StorageError as error:
            if error.__cause__ is not None and is_busy(error.__cause__):
                raise _NearIsTaken from error
            raise
        finally:
            self._near_lock.release()

    @override
    def _read_here(self, work: Callable[[Database], T]) -> T:
        with plain_words(self.path):
            connection: SqliteDatabase | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self.path, is_reader=True)
                self._opened.append(connection)
            return _in_snapshot(connection, work)


class _NearIsTaken(Exception):  # noqa: N818 - a signal between two methods, not an error
    """The connection for point reads is in use or would have to wait."""


class _Copier:
    """Checkpoints the write-ahead log into the database, in its own thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._has_copied_all = True
        self._wake = threading.Event()
        self._is_closed = False
        self._connection = connect(path)
        self._thread = threading.Thread(target=self._run, name="deerflow-wal", daemon=True)
        self._thread.start()

    def may_restart(self) -> bool:
        """Return whether the next commit may restart the log, which waits for an fsync."""
        return self._has_copied_all

    def nudge(self, writer: SqliteDatabase | None) -> None:
        """Check the size of the log after a commit; `writer` is passed if it may checkpoint itself."""
        if writer is not None:
            self._has_copied_all = False
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            self._has_copied_all = True  # no WAL on this file system: every commit waits for an fsync
            return
        if size > WAL_BYTES:
            self._wake.set()
        if size > WAL_BYTES * 3 // 2 and writer is not None:
            # Continuous writes keep the log from restarting: make them wait for the checkpoint.
            self._copy(writer)

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            self._copy(self._connection)
        self._connection.close()

    def _copy(self, connection: SqliteDatabase) -> None:
        try:
            _, logged, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if logged == copied:
                self._has_copied_all = True
        except sqlite3.Error as error:
            # Nothing is lost: the log only stays longer, and the next commit tries again.
            logger.warning("database %s: its log could not be copied: %s", self._path, error)


def _prepare(path: Path, *, is_temporary: bool) -> SqliteDatabase:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        connection = connect(path)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                logger.warning("database %s: no write-ahead log on this file system, reads may wait", path)
            if is_temporary:
                connection.execute("PRAGMA synchronous = OFF")
            migrate(connection, path)
            if mode == "wal":
                # The writer thread retries locked writes itself, so that no event loop blocks on them.
                connection.execute("PRAGMA busy_timeout = 0")
            return connection
        except BaseException as error:
            connection.close()
            # Two processes that open a new file at the same time can briefly block each other.
            if not is_busy(error) or time.monotonic() > deadline:
                raise


def _in_snapshot(connection: SqliteDatabase, work: Callable[[Database], T]) -> T:
    # One transaction, so that all statements of a read see one snapshot.
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
