"""SQLite engine for any number of event loops: one writer with group commit, and readers in parallel.

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
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from deerflow.errors import ConfigError, StorageError
from deerflow.storage.database import Database, Engine
from deerflow.storage.signals import Signals
from deerflow.storage.sqlite.connection import (
    LOCK_SECONDS,
    SQLITE,
    WAL_BYTES,
    SqliteDatabase,
    connect,
    create_file,
    explain,
    is_busy,
    is_full,
    migrate,
    translated_errors,
)
from deerflow.storage.write_queue import WriteJob, WriteQueue, deliver

logger = logging.getLogger(__name__)

READERS = 3
_BUSY_PAUSE_SECONDS = 0.002
T = TypeVar("T")


class SqliteEngine(Engine):
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
            with translated_errors(path):
                self._connection = _prepare(path, is_temporary=is_temporary)
        except StorageError as error:
            raise ConfigError(str(error)) from error
        self._point_reader = connect(path, busy_seconds=0, is_reader=True)
        self._point_lock = threading.Lock()
        self._opened: list[SqliteDatabase] = []
        self._wal = _WalCheckpointer(path)
        self._writer = _SqliteWriter(path, self._connection, self._wal, self.signals)

    @classmethod
    async def open(cls, path: Path) -> "SqliteEngine":
        """Open a database file; create or upgrade it if needed."""
        return await asyncio.to_thread(cls, path)

    @classmethod
    async def open_temporary(cls) -> "SqliteEngine":
        """Open a database that is deleted when it is closed."""

        def create() -> SqliteEngine:
            return cls(Path(tempfile.mkdtemp(prefix="deerflow-")) / "deerflow.db", is_temporary=True)

        return await asyncio.to_thread(create)

    @override
    async def peek(self, work: Callable[[Database], T]) -> T:
        if not self._point_lock.acquire(blocking=False):
            return await self.read(work)
        try:
            with translated_errors(self.path):
                return _in_snapshot(self._point_reader, work)
        except StorageError as error:
            if error.__cause__ is None or not is_busy(error.__cause__):
                raise
        finally:
            self._point_lock.release()
        return await self.read(work)

    @override
    def _close(self) -> None:
        self._is_closed = True
        self._writer.close()
        self._wal.close()
        self._pool.shutdown(wait=True)
        with self._point_lock:
            for connection in (*self._opened, self._point_reader, self._connection):
                connection.close()
        if self._is_temporary:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    @override
    def _read_here(self, work: Callable[[Database], T]) -> T:
        with translated_errors(self.path):
            connection: SqliteDatabase | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self.path, is_reader=True)
                self._opened.append(connection)
            return _in_snapshot(connection, work)


class _SqliteWriter(WriteQueue):
    """Runs jobs one after another in one thread, many per transaction, each in its own savepoint."""

    def __init__(
        self, path: Path, connection: SqliteDatabase, wal: "_WalCheckpointer", signals: Signals
    ) -> None:
        """Start the thread.

        Args:
            connection: A connection without a busy timeout.
        """
        self._path = path
        self._connection = connection
        self._wal = wal
        self._signals = signals
        super().__init__(str(path))

    @override
    def _write(self, jobs: list[WriteJob]) -> None:
        if not self._try_together(jobs):
            # The whole transaction was lost (disk full, I/O error): run each job alone for its own result.
            for job in jobs:
                self._try_together([job])
        deliver(jobs)
        self._notify()
        self._wal.committed(self._connection)

    @override
    def _write_inline(self, jobs: list[WriteJob]) -> bool:
        if self._wal.may_restart():
            return False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False  # another process writes, or the disk fails: the thread handles it
        if not self._try_begun(jobs):
            return False
        deliver(jobs, current_loop=asyncio.get_running_loop())
        self._notify()
        self._wal.committed(None)
        return True

    def _notify(self) -> None:
        if self._connection.topics:
            self._signals.notify(self._connection.topics)
            self._connection.topics.clear()

    def _try_together(self, jobs: list[WriteJob]) -> bool:
        """Return False when jobs that might have succeeded were lost because of others."""
        try:
            self._begin()
        except sqlite3.Error as error:
            self._fail(jobs, explain(error, self._path))
            return True
        return self._try_begun(jobs)

    def _try_begun(self, jobs: list[WriteJob]) -> bool:
        try:
            for job in jobs:
                self._run_job(job)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if len(jobs) > 1 and not is_busy(error):
                return False
            self._fail(jobs, explain(error, self._path))
        return True

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # a failing disk may refuse it: the next transaction tries again
                self._connection.execute("ROLLBACK")

    def _begin(self) -> None:
        self._roll_back()
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_BUSY_PAUSE_SECONDS)

    def _run_job(self, job: WriteJob) -> None:
        connection = self._connection
        connection.execute("SAVEPOINT job")
        try:
            job.result, job.error = job.work(connection), None
        except Exception as error:  # any exception belongs to the caller
            job.error = explain(error, self._path)
            if not connection.in_transaction or is_full(error):
                raise sqlite3.OperationalError("the transaction was lost") from error
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    @staticmethod
    def _fail(jobs: Iterable[WriteJob], error: Exception) -> None:
        for job in jobs:
            job.error = job.error or error


class _WalCheckpointer:
    """Checkpoints the write-ahead log into the database, in its own thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._is_complete = True
        self._wake = threading.Event()
        self._is_closed = False
        self._connection = connect(path)
        self._thread = threading.Thread(target=self._run, name="deerflow-wal", daemon=True)
        self._thread.start()

    def may_restart(self) -> bool:
        """Return whether the next commit may restart the log, which waits for an fsync."""
        return self._is_complete

    def committed(self, writer: SqliteDatabase | None) -> None:
        """Check the size of the log after a commit; `writer` is passed if it may checkpoint itself."""
        if writer is not None:
            self._is_complete = False
        try:
            size = self._log.stat().st_size
        except FileNotFoundError:
            self._is_complete = True  # no WAL on this file system: every commit waits for an fsync
            return
        if size > WAL_BYTES:
            self._wake.set()
        if size > WAL_BYTES * 3 // 2 and writer is not None:
            # Continuous writes keep the log from restarting: make them wait for the checkpoint.
            self._checkpoint(writer)

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            self._checkpoint(self._connection)
        self._connection.close()

    def _checkpoint(self, connection: SqliteDatabase) -> None:
        try:
            _, logged, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if logged == copied:
                self._is_complete = True
        except sqlite3.Error as error:
            # Nothing is lost: the log only stays longer, and the next commit tries again.
            logger.warning("database %s: its log could not be checkpointed: %s", self._path, error)


def _prepare(path: Path, *, is_temporary: bool) -> SqliteDatabase:
    deadline = time.monotonic() + LOCK_SECONDS
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
