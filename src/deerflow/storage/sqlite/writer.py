"""The thread that writes to SQLite, with group commit: queued units are committed together.

Every unit runs in its own savepoint, so one that fails does not fail the others.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from deerflow.storage.sqlite.connect import SqliteDatabase, explain, is_busy, is_full
from deerflow.storage.write_queue import Unit, UnitQueue, deliver

PATIENCE_SECONDS = 30.0
"""How long a transaction waits for another process that writes."""
BUSY_PAUSE_SECONDS = 0.002


class Writer(UnitQueue):
    """Runs units one after another in one thread, many per transaction."""

    def __init__(
        self,
        path: Path,
        connection: SqliteDatabase,
        *,
        committed: Callable[[SqliteDatabase, bool], None],
        may_sync: Callable[[], bool],
    ) -> None:
        """Start the thread.

        Args:
            connection: A connection without a busy timeout.
            committed: Called after each commit, with True when there is time for a checkpoint.
            may_sync: Returns whether the next commit may wait for an fsync.
        """
        self._path = path
        self._connection = connection
        self._committed = committed
        self._may_sync = may_sync
        super().__init__(str(path))

    @override
    def _write(self, units: list[Unit]) -> None:
        self._commit(units)
        deliver(units)
        self._committed(self._connection, True)

    @override
    def _write_near(self, units: list[Unit]) -> bool:
        if self._may_sync():
            return False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False  # another process writes, or the disk fails: the thread handles it
        if not self._try_begun(units):
            return False
        deliver(units, here=asyncio.get_running_loop())
        self._committed(self._connection, False)
        return True

    def _commit(self, units: list[Unit]) -> None:
        if self._try_together(units):
            return
        # The whole transaction was lost (disk full, I/O error): run each unit alone to find its own result.
        for unit in units:
            self._try_together([unit])

    def _try_together(self, units: list[Unit]) -> bool:
        """Return False when units that might have succeeded were lost because of others."""
        try:
            self._begin()
        except sqlite3.Error as error:
            self._fail(units, explain(error, self._path))
            return True
        return self._try_begun(units)

    def _try_begun(self, units: list[Unit]) -> bool:
        try:
            for unit in units:
                self._one(unit)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if len(units) > 1 and not is_busy(error):
                return False
            self._fail(units, explain(error, self._path))
        return True

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # a failing disk may refuse it: the next transaction tries again
                self._connection.execute("ROLLBACK")

    def _begin(self) -> None:
        self._roll_back()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(BUSY_PAUSE_SECONDS)

    def _one(self, unit: Unit) -> None:
        connection = self._connection
        connection.execute("SAVEPOINT unit")
        try:
            unit.result, unit.error = unit.work(connection), None
        except Exception as error:  # any exception belongs to the caller
            unit.error = explain(error, self._path)
            if not connection.in_transaction or is_full(error):
                raise sqlite3.OperationalError("the transaction was lost") from error
            connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")

    @staticmethod
    def _fail(units: Iterable[Unit], error: Exception) -> None:
        for unit in units:
            unit.error = unit.error or error
