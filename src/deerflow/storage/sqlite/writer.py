"""The one thread that writes, with group commit: what waits together is committed together.

Every unit of work runs in a savepoint of its own, so one that fails does not fail its neighbours.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from deerflow.errors import StorageError
from deerflow.storage.sqlite.connect import SqliteDatabase, explain, is_busy, is_full
from deerflow.storage.units import Unit, deliver

GROUP = 500
"""How many units one transaction holds at most."""
PATIENCE_SECONDS = 30.0
"""How long a transaction waits for another process that writes."""


class Writer:
    """Runs units one after another in one thread, many to a transaction."""

    def __init__(
        self, path: Path, connection: SqliteDatabase, committed: Callable[[SqliteDatabase], None]
    ) -> None:
        self._path = path
        self._connection = connection
        self._committed = committed
        self._queue: deque[Unit] = deque()
        self._gate = threading.Lock()
        self._has_work = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="deerflow-writer", daemon=True)
        self._thread.start()

    def put(self, unit: Unit, *, wakes: bool = True) -> None:
        """Queue a unit; the order of the queue is the order of the database.

        Args:
            wakes: Let the thread begin at once; else the unit goes with the next one that does, or
                with `wake`. Waking it makes the caller share the interpreter at the worst moment.
        """
        with self._gate:
            if self._is_closed:
                raise StorageError(f"the database {self._path} is closed")
            self._queue.append(unit)
        if wakes:
            self._has_work.set()

    def wake(self) -> None:
        """Begin with what waits, if anything does."""
        if self._queue:
            self._has_work.set()

    def close(self) -> None:
        """Finish everything that was queued and end the thread."""
        with self._gate:
            self._is_closed = True
        self._has_work.set()
        self._thread.join()

    def _run(self) -> None:
        while not (self._is_closed and not self._queue):
            self._has_work.wait()
            self._has_work.clear()
            while units := self._next():
                self._commit(units)
                deliver(units)
                self._committed(self._connection)

    def _next(self) -> list[Unit]:
        return [self._queue.popleft() for _ in range(min(len(self._queue), GROUP))]

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
            for unit in units:
                self._one(unit)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if len(units) > 1 and not is_busy(error):
                return False
            self._fail(units, explain(error, self._path))
        return True

    def _begin(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise

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
