"""PostgreSQL engine for any number of event loops: one connection writes, others read, one listens.

Each reader thread keeps a supervised connection of its own. `psycopg_pool` would add a second pool behind
the threads, and its connections would need the same supervision.
"""

import asyncio
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql
from typing_extensions import override

from deerflow.config import DatabaseSettings
from deerflow.errors import ConfigError
from deerflow.storage.database import Database, Engine, Rows
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, creation_script, known_revisions
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
from deerflow.storage.postgres.writer import PostgresWriter
from deerflow.storage.signals import Signals

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MIGRATION_LOCK = 0x44454552
"""Advisory lock number of the process that migrates (`DEER`)."""


class PostgresEngine(Engine):
    """Writes and reads one database; closing it finishes every write."""

    dialect = POSTGRES

    def __init__(self, settings: DatabaseSettings) -> None:
        """Connect, blocking; `PostgresEngine.open` does it in a thread."""
        self.target = target_of(settings)
        super().__init__(self.target.name, readers=max(settings.pool_size - 1, 1))
        self.signals = Signals()
        connection = first_connection(self.target)
        try:
            migrate(self.target, connection)
        except BaseException:
            connection.close()
            raise
        self._needs_snapshot: set[object] = set()
        """The kinds of reads that are known to have more than one statement."""
        self._watchdog = Watchdog(self.target)
        supervised = SupervisedConnection(self.target, connection)
        self._watchdog.watch(supervised)
        self._writer = PostgresWriter(self.target, supervised)
        self._listener = _Listener(self.target, self.signals)

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> "PostgresEngine":
        """Connect to a database; create or upgrade its tables if needed."""
        return await asyncio.to_thread(cls, settings)

    @override
    def shorten_timeouts(self) -> None:
        self.target.exiting.set()

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
        """Run a read; retry while the database is unreachable and time remains."""
        connection: SupervisedConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = SupervisedConnection(self.target)
            self._watchdog.watch(connection)
        began_at = time.monotonic()
        for pause in retry_pauses():
            try:
                connection.open()
                return self._read(connection, work)
            except (UnicodeEncodeError, OverflowError) as error:
                raise explain(error, self.target) from error
            except psycopg.Error as error:
                if not connection.is_lost or time.monotonic() > began_at + self.target.timeout_seconds:
                    raise explain(error, self.target) from error
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def _read(self, connection: SupervisedConnection, work: Callable[[Database], T]) -> T:
        """Run a read; a single statement needs no transaction, which saves two round trips."""
        kind = getattr(work, "__code__", work)
        if kind not in self._needs_snapshot:
            try:
                return work(_OneStatement(connection, echo=self.target.echo_sql))
            except _SecondStatementError:
                self._needs_snapshot.add(kind)
        # One transaction, so that all statements of a read see one snapshot.
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", prepare=False)
        try:
            return work(PostgresDatabase(connection, echo=self.target.echo_sql))
        finally:
            if not connection.is_lost:
                connection.execute("ROLLBACK", prepare=False)


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


def migrate(target: Target, connection: Connection, *, folder: Path = FOLDER) -> None:
    """Create or upgrade the tables; refuse a database that is newer or holds tables of another program."""
    try:
        if _revision(connection) == known_revisions(folder)[-1]:
            return
        connection.execute("SET statement_timeout = 0")
        connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
        try:
            _create_or_upgrade(target, connection, folder)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))
            connection.execute(f"SET statement_timeout = {int((target.command_timeout or 0) * 1000)}")
    except errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"the user of database.postgres_url may not make tables in {target.name}: grant it CREATE on "
            f"the {'schema' if target.schema else 'database'}, or set database.postgres_schema to a schema "
            "of its own"
        ) from error
    except errors.DuplicateTable as error:
        raise ConfigError(
            f"the database {target.name} holds tables of another program or of DeerFlow 2: "
            "set database.postgres_schema to a schema of its own"
        ) from error
    except psycopg.Error as error:
        raise ConfigError(str(explain(error, target))) from error


def _create_or_upgrade(target: Target, connection: Connection, folder: Path) -> None:
    # Check first: CREATE SCHEMA IF NOT EXISTS needs the CREATE privilege even if the schema exists.
    known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (target.schema,))
    if target.schema and known.fetchone() is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(target.schema)))
    revision, revisions = _revision(connection), known_revisions(folder)
    if revision is None:
        with connection.transaction():
            connection.execute(creation_script("postgres", folder).encode())
            if not _has_table(connection, "procrastinate_jobs"):
                schema = resources.files("procrastinate.sql") / "schema.sql"
                connection.execute(schema.read_bytes())
    elif revision not in revisions:
        raise ConfigError(
            f"the database {target.name} was written by a newer DeerFlow (schema {revision}, this one knows "
            f"{revisions[-1]}): update DeerFlow, or set database.postgres_schema to another schema"
        )
    elif revision != revisions[-1]:
        from deerflow.storage.migrations.upgrade import upgrade  # noqa: PLC0415 - slow to load

        connection.autocommit = False
        try:
            upgrade("postgresql+psycopg", connection, folder=folder)
        finally:
            connection.rollback()
            connection.autocommit = True


def _revision(connection: Connection) -> str | None:
    if not _has_table(connection, VERSION_TABLE):
        return None
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return None if row is None else str(row[0])


def _has_table(connection: Connection, name: str) -> bool:
    found = connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
    return found is not None and found[0] is not None
