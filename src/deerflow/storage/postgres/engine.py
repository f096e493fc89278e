"""PostgreSQL engine for any number of event loops: one connection writes, others read, one listens.

Each reader thread keeps a supervised connection of its own. `psycopg_pool` would add a second pool behind
the threads, and its connections would need the same supervision.
"""

import asyncio
import logging
import math
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from typing_extensions import override

from deerflow.config import DatabaseSettings
from deerflow.storage.database import Database, Engine, Rows
from deerflow.storage.postgres.connection import (
    EXIT_SECONDS,
    Connection,
    SupervisedConnection,
    Target,
    Watchdog,
    connect,
    explain,
    first_connection,
    retry_pauses,
    target_of,
)
from deerflow.storage.postgres.database import POSTGRES, PostgresDatabase
from deerflow.storage.postgres.migrate import migrate
from deerflow.storage.postgres.writer import PostgresWriter
from deerflow.storage.signals import Signals

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PostgresEngine(Engine):
    """Writes and reads one database; closing it finishes every write."""

    dialect = POSTGRES

    def __init__(self, settings: DatabaseSettings) -> None:
        """Connect, blocking; `PostgresEngine.open` does it in a thread."""
        self.target = target_of(settings)
        super().__init__(self.target.name, readers=max(settings.pool_size - 1, 1))
        self.signals = Signals()
        self._recycle_seconds = float(settings.pool_recycle)
        connection = first_connection(self.target)
        try:
            migrate(self.target, connection)
        except BaseException:
            connection.close()
            raise
        self._is_exiting = False
        self._needs_snapshot: set[object] = set()
        self._watchdog = Watchdog(self.target)
        supervised = SupervisedConnection(self.target, connection, recycle_seconds=self._recycle_seconds)
        self._watchdog.watch(supervised)
        self._writer: PostgresWriter = PostgresWriter(self.target, supervised)
        self._listener = _Listener(self.target, self.signals)

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> "PostgresEngine":
        """Connect to a database; create or upgrade its tables if needed."""
        return await asyncio.to_thread(cls, settings)

    @override
    def shorten_timeouts(self) -> None:
        self._is_exiting = True
        self._writer.shorten_timeouts()
        self._watchdog.shorten_timeouts()

    @override
    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.shorten_timeouts()
        self._writer.close()
        self._listener.close()
        self._pool.shutdown(wait=True)
        self._watchdog.close()

    @override
    def _read_here(self, work: Callable[[Database], T]) -> T:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            connection = SupervisedConnection(self.target, recycle_seconds=self._recycle_seconds)
            self._watchdog.watch(connection)
            reader = self._local.reader = _Reader(self.target, connection, self._needs_snapshot)
        return reader.run(work, limit_seconds=lambda: EXIT_SECONDS if self._is_exiting else math.inf)


class _SecondStatementError(Exception):
    """The read has more than one statement."""


class _OneStatement(PostgresDatabase):
    """A connection for reads of a single statement."""

    _is_used = False

    @override
    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        if self._is_used:
            raise _SecondStatementError
        self._is_used = True
        return super().execute(sql, values)


class _Reader:
    """Runs reads on one connection, in one thread."""

    def __init__(self, target: Target, connection: SupervisedConnection, needs_snapshot: set[object]) -> None:
        """Create a reader.

        Args:
            needs_snapshot: The kinds of reads that are known to have more than one statement.
        """
        self._target = target
        self._connection = connection
        self._needs_snapshot = needs_snapshot

    def run(self, work: Callable[[Database], T], *, limit_seconds: Callable[[], float]) -> T:
        """Run a read; retry while the database is unreachable and time remains.

        Args:
            limit_seconds: Returns the current time limit.
        """
        began_at = time.monotonic()
        for pause in retry_pauses():
            try:
                self._connection.open()
                return self._read(work)
            except (UnicodeEncodeError, OverflowError) as error:
                raise explain(error, self._target) from error
            except psycopg.Error as error:
                limit = min(self._target.timeout_seconds, limit_seconds())
                if not self._connection.is_lost or time.monotonic() > began_at + limit:
                    raise explain(error, self._target) from error
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def _read(self, work: Callable[[Database], T]) -> T:
        """Run a read; a single statement needs no transaction, which saves two round trips."""
        kind = getattr(work, "__code__", work)
        if kind not in self._needs_snapshot:
            try:
                return work(_OneStatement(self._connection, echo=self._target.echo_sql))
            except _SecondStatementError:
                self._needs_snapshot.add(kind)
        return self._in_snapshot(work)

    def _in_snapshot(self, work: Callable[[Database], T]) -> T:
        # One transaction, so that all statements of a read see one snapshot.
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", prepare=False)
        try:
            return work(PostgresDatabase(self._connection, echo=self._target.echo_sql))
        finally:
            if not self._connection.is_lost:
                self._connection.execute("ROLLBACK", prepare=False)


class _Listener:
    """Receives the signals of other processes with LISTEN, in its own thread, and reconnects when necessary.

    While the connection is lost, waiters poll the database when their wait times out.
    """

    def __init__(self, target: Target, signals: Signals) -> None:
        self._target = target
        self._signals = signals
        self._closing = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="deerflow-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        os.write(self._wake_writer, b"x")
        self._thread.join(EXIT_SECONDS)
        if not self._thread.is_alive():  # otherwise it is still connecting to a server that does not respond
            os.close(self._wake_writer)
            os.close(self._wake_reader)

    def _run(self) -> None:
        pauses = retry_pauses()
        while not self._closing.is_set():
            try:
                with connect(self._target) as connection:
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._target.channel)))
                    pauses = retry_pauses()
                    self._signals.notify_all()  # signals sent while disconnected were lost
                    self._signals.is_connected = True
                    self._listen(connection)
            except psycopg.Error:
                if self._signals.is_connected:
                    logger.warning("database %s: signals of others are lost for now", self._target.name)
            finally:
                self._signals.is_connected = False
            self._closing.wait(next(pauses))

    def _listen(self, connection: Connection) -> None:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._wake_reader, select.POLLIN)
        while not self._closing.is_set():
            waiting.poll()
            connection.pgconn.consume_input()
            topics = []
            while (notice := connection.pgconn.notifies()) is not None:
                topics.append(notice.extra.decode())
            self._signals.notify(topics)
