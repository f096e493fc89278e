"""One SQLite file for any number of event loops: one writer, readers beside it.

Point reads run on the calling thread: 15 µs, where the hop to another thread costs 80 µs on an idle
loop and over a millisecond on a busy one. Everything that scans goes to reader threads. The
write-ahead log is copied into the database by a connection in the background.
"""

import asyncio
import logging
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

from deerflow.errors import ConfigError, StorageError
from deerflow.storage.sqlite.connect import WAL_BYTES, connect, create_file, is_busy, plain_words
from deerflow.storage.sqlite.migrations import migrate
from deerflow.storage.sqlite.writer import PATIENCE_SECONDS, Unit, Writer

logger = logging.getLogger(__name__)

READERS = 3
MOMENT_SECONDS = 0.002
"""How long a write that nobody waits for waits for company."""
T = TypeVar("T")


class Engine:
    """Writes and reads one database file; closing it finishes every write."""

    def __init__(self, path: Path, *, is_temporary: bool = False) -> None:
        """Open the file, blocking; `Engine.open` does it beside the loop."""
        self.path = path
        self._is_temporary = is_temporary
        self._is_closed = False
        create_file(path)
        try:
            with plain_words(path):
                self._connection = _prepare(path, is_temporary=is_temporary)
        except StorageError as error:
            raise ConfigError(str(error)) from error
        self._near = connect(path, busy_seconds=0, is_reader=True)
        self._near_lock = threading.Lock()
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="deerflow-reader")
        self._copier = _Copier(path)
        self._writer = Writer(path, self._connection, self._copier.nudge)

    @classmethod
    async def open(cls, path: Path) -> "Engine":
        """Open a database file, made or upgraded when needed."""
        return await asyncio.to_thread(cls, path)

    @classmethod
    async def open_temporary(cls) -> "Engine":
        """Open a database that vanishes when it is closed."""

        def made() -> Engine:
            return cls(Path(tempfile.mkdtemp(prefix="deerflow-")) / "deerflow.db", is_temporary=True)

        return await asyncio.to_thread(made)

    async def write(self, work: Callable[[sqlite3.Connection], T], *, may_wait: bool = False) -> T:
        """Run `work` in a transaction and return its result once it is committed.

        `work` may be run twice when the first transaction is lost, so it touches only the database.

        Args:
            may_wait: Nobody waits for this one: it is committed a moment later, with others.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._writer.put(Unit(work, loop, future), wakes=not may_wait)
        if may_wait:
            loop.call_later(MOMENT_SECONDS, self._writer.wake)
        return cast(T, await future)

    def write_blocking(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `write`, for callers without an event loop."""
        future: Future[Any] = Future()
        self._writer.put(Unit(work, None, future))
        return cast(T, future.result())

    def post(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Queue a write that nobody waits for; it is stored before every write that comes after it."""
        self._writer.put(Unit(work, None, Future()))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read that may take long in a reader thread."""
        return await asyncio.wrap_future(self._far(work))

    async def peek(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read of a few rows by index at once, on this thread."""
        try:
            return self._peek(work)
        except _NearIsTaken:
            return await self.read(work)

    def read_blocking(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `read`, for callers without an event loop."""
        try:
            return self._peek(work)
        except _NearIsTaken:
            return self._far(work).result()

    async def aclose(self) -> None:
        """Finish all writes, then close the file; a temporary one is gone."""
        await asyncio.to_thread(self._close)

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

    def _peek(self, work: Callable[[sqlite3.Connection], T]) -> T:
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

    def _far(self, work: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        if self._is_closed:
            raise StorageError(f"the database {self.path} is closed")
        return self._pool.submit(self._read_here, work)

    def _read_here(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with plain_words(self.path):
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self.path, is_reader=True)
                self._opened.append(connection)
            return _in_snapshot(connection, work)


class _NearIsTaken(Exception):  # noqa: N818 - a signal between two methods, not an error
    """The connection of the calling thread is in use or would have to wait."""


class _Copier:
    """Copies the write-ahead log into the database, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._wake = threading.Event()
        self._is_closed = False
        self._connection = connect(path)
        self._thread = threading.Thread(target=self._run, name="deerflow-wal", daemon=True)
        self._thread.start()

    def nudge(self, writer: sqlite3.Connection) -> None:
        """Look at the size of the log; called in the writer's thread after each commit."""
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            return
        if size > WAL_BYTES:
            self._wake.set()
        if size > WAL_BYTES * 3 // 2:
            # Writes without a pause keep the log from starting again: now they wait for the copy.
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

    def _copy(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            # Nothing is lost: the log only stays longer, and the next commit asks again.
            logger.warning("database %s: its log could not be copied: %s", self._path, error)


def _prepare(path: Path, *, is_temporary: bool) -> sqlite3.Connection:
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
            return connection
        except BaseException as error:
            connection.close()
            # Two processes that open a new file at once can be in each other's way for a moment.
            if not is_busy(error) or time.monotonic() > deadline:
                raise


def _in_snapshot(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    # One transaction, so that the statements of one read see one state.
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
