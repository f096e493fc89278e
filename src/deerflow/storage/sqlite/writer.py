"""The one thread that writes, with group commit: what waits together is committed together.

Every unit of work runs in a savepoint of its own, so one that fails does not fail its neighbours.
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
    """Runs units one after another in one thread, many to a transaction."""

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
            connection: One that never waits for a lock by itself.
            committed: Called after each commit, and told whether there is time for more.
            may_sync: Tells whether the next commit may have to wait for the disk.
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
            return False  # another process writes, or the disk is bad: the thread finds out
        if not self._try_begun(units):
            return False
        deliver(units, here=asyncio.get_running_loop())
        self._committed(self._connection, False)
        return True

    def _commit(self, units: list[Unit]) -> None:
        if self._try_together(units):
            return
        # The transaction as a whole was lost (no space, a bad disk): each one alone learns its fate.
        for unit in units:
            self._try_together([unit])

    def _try_together(self, units: list[Unit]) -> bool:
        """Return False when units that could have gone well were lost because of others."""
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
            with suppress(sqlite3.Error):  # on a bad disk not even that may go well: the next one tries again
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
        except Exception as error:  # whatever it is belongs to the one who asked
            unit.error = explain(error, self._path)
            if not connection.in_transaction or is_full(error):
                raise sqlite3.OperationalError("the transaction was lost") from error
            connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")

    @staticmethod
    def _fail(units: Iterable[Unit], error: Exception) -> None:
        for unit in units:
            unit.error = unit.error or error
