"""PostgreSQL engine for any number of event loops: one connection writes, others read, one listens."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import psycopg
from typing_extensions import override

from deerflow.config import DatabaseSettings
from deerflow.storage.database import Database, Rows
from deerflow.storage.postgres.connect import HASTY_SECONDS, Target, explain, first_connection, target_of
from deerflow.storage.postgres.database import PostgresDatabase
from deerflow.storage.postgres.dialect import POSTGRES
from deerflow.storage.postgres.line import Line, Watchdog
from deerflow.storage.postgres.listener import Listener
from deerflow.storage.postgres.migrate import migrate
from deerflow.storage.postgres.writer import Writer, pauses
from deerflow.storage.reader_pool import PooledEngine
from deerflow.storage.signals import Signals

T = TypeVar("T")


class PostgresEngine(PooledEngine):
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
        self._is_hasty = False
        self._needs_snapshot: set[object] = set()
        self._watchdog = Watchdog(self.target)
        line = Line(self.target, connection, recycle_seconds=self._recycle_seconds)
        self._watchdog.watch(line)
        self._writer: Writer = Writer(self.target, line)
        self._listener = Listener(self.target, self.signals)

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> "PostgresEngine":
        """Connect to a database; create or upgrade its tables if needed."""
        return await asyncio.to_thread(cls, settings)

    @override
    async def write(
        self, work: Callable[[Database], T], *, may_wait: bool = False, weight: int | None = None
    ) -> T:
        return cast(T, await self._writer.ask(work, may_wait=may_wait))

    @override
    async def peek(self, work: Callable[[Database], T]) -> T:
        # Never on the calling thread: the database may be slow to reach or unreachable.
        return await asyncio.wrap_future(self._far(work))

    @override
    def shorten_timeouts(self) -> None:
        self._is_hasty = True
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
            line = Line(self.target, recycle_seconds=self._recycle_seconds)
            self._watchdog.watch(line)
            reader = self._local.reader = _Reader(self.target, line, self._needs_snapshot)
        return reader.run(work, patience=lambda: HASTY_SECONDS if self._is_hasty else math.inf)


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

    def __init__(self, target: Target, line: Line, needs_snapshot: set[object]) -> None:
        """Create a reader.

        Args:
            needs_snapshot: The kinds of reads that are known to have more than one statement.
        """
        self._target = target
        self._line = line
        self._needs_snapshot = needs_snapshot

    def run(self, work: Callable[[Database], T], *, patience: Callable[[], float]) -> T:
        """Run a read; retry while the database is unreachable and time remains.

        Args:
            patience: Returns the current time limit in seconds.
        """
        began_at = time.monotonic()
        for pause in pauses():
            try:
                self._line.open()
                return self._read(work)
            except (UnicodeEncodeError, OverflowError) as error:
                raise explain(error, self._target) from error
            except psycopg.Error as error:
                limit = min(self._target.patience_seconds, patience())
                if not self._line.is_lost or time.monotonic() > began_at + limit:
                    raise explain(error, self._target) from error
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def _read(self, work: Callable[[Database], T]) -> T:
        """Run a read; a single statement needs no transaction, which saves two round trips."""
        kind = getattr(work, "__code__", work)
        if kind not in self._needs_snapshot:
            try:
                return work(_OneStatement(self._line, echo=self._target.echo_sql))
            except _SecondStatementError:
                self._needs_snapshot.add(kind)
        return self._in_snapshot(work)

    def _in_snapshot(self, work: Callable[[Database], T]) -> T:
        # One transaction, so that all statements of a read see one snapshot.
        self._line.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", prepare=False)
        try:
            return work(PostgresDatabase(self._line, echo=self._target.echo_sql))
        finally:
            if not self._line.is_lost:
                self._line.execute("ROLLBACK", prepare=False)
