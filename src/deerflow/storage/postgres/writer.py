"""The one thread that writes to PostgreSQL, with group commit: what waits together is committed together.

A unit that fails is taken out of its group, and the others are done again without it. A transaction
whose commit was not answered is looked up by its number before anything is done again, so that
nothing happens twice and nothing that was acknowledged is lost.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat

import psycopg
from psycopg import sql
from typing_extensions import override

from deerflow.errors import DeerFlowError, StorageError
from deerflow.storage.postgres.connect import Connection, Target, connect, explain, is_lost, may_pass
from deerflow.storage.postgres.database import ContendedError, PostgresDatabase
from deerflow.storage.units import Unit, UnitQueue, deliver

logger = logging.getLogger(__name__)

_NOTIFY_AND_COMMIT = "SELECT pg_notify({}, topic) FROM unnest({}::text[]) AS topic; COMMIT"
_TRIES = 10
"""How often a unit is done again after it was in the way of another process."""


class Writer(UnitQueue):
    """Runs units one after another in one thread, many to a transaction."""

    def __init__(self, target: Target, connection: Connection, *, recycle_seconds: float) -> None:
        self._target = target
        self._connection = connection
        self._opened_at = time.monotonic()
        self._recycle_seconds = recycle_seconds
        super().__init__(target.name)

    @override
    def close(self) -> None:
        super().close()
        self._connection.close()

    @override
    def _write(self, units: list[Unit]) -> None:
        size, tries = len(units), 0
        while units:
            group, done = units[:size], 0
            try:
                spoilt = self._try(group)
            except _LostError as error:
                units = self._wait(units, error)
            except _AgainError as error:
                tries += 1
                done = 0 if tries < _TRIES else _fail(group[:1], explain(error.cause, self._target))
            except StorageError as error:
                done = _fail(group, error)
            else:
                # A unit that spoils its group: those before it go alone, then it is the first of the rest.
                done = len(group) if spoilt is None else int(spoilt == 0)
                size = spoilt or len(units)
            if done:
                deliver(group[:done])
                units = units[done:]
                size, tries = len(units), 0

    def _try(self, group: Sequence[Unit]) -> int | None:
        """Do these units in one transaction; return which one spoilt it, None when it was committed."""
        number = self._begin()
        db = PostgresDatabase(self._connection, echo=self._target.echo_sql)
        for index, unit in enumerate(group):
            # What holds nothing yet may wait for others; else two could wait for each other.
            db.may_block, db.has_written = index == 0, False
            if not self._one(db, unit):
                self._roll_back()
                return index
        self._commit(number, db.told)
        return None

    def _one(self, db: PostgresDatabase, unit: Unit) -> bool:
        """Do one unit; return False when the transaction is spoilt by it."""
        try:
            unit.result, unit.error = unit.work(db), None
        except ContendedError:
            return False
        except psycopg.Error as error:
            if is_lost(self._connection):
                raise _LostError from error
            if may_pass(error) and db.may_block:
                self._roll_back()
                raise _AgainError(error) from error
            unit.error = explain(error, self._target)
            return False
        except Exception as error:  # whatever it is belongs to the one who asked
            unit.error = explain(error, self._target)
            # What only looked around left nothing to undo.
            return isinstance(error, DeerFlowError) and not db.has_written
        return True

    def _begin(self) -> str:
        """Begin a transaction and return its number."""
        if time.monotonic() - self._opened_at > self._recycle_seconds:
            self._connection.close()
        try:
            self._ensure_connection()
            cursor = self._connection.execute("BEGIN; SELECT pg_current_xact_id()::text", prepare=False)
            cursor.nextset()
            row = cursor.fetchone()
        except psycopg.Error as error:
            raise _LostError from error
        assert row is not None
        return str(row[0])

    def _commit(self, number: str, topics: Collection[str]) -> None:
        statement: sql.SQL | sql.Composed = sql.SQL("COMMIT")
        if topics:
            statement = sql.SQL(
                "SELECT pg_notify({}, topic) FROM unnest({}::text[]) AS topic; COMMIT"
            ).format(sql.Literal(self._target.channel), sql.Literal(list(topics)))
        try:
            self._connection.execute(statement, prepare=False)
        except psycopg.Error as error:
            if is_lost(self._connection):
                self._find_out(number, error)
                return
            self._roll_back()
            raise explain(error, self._target) from error

    def _find_out(self, number: str, error: psycopg.Error) -> None:
        """Return when the transaction was committed after all; `_LostError` when it was not."""
        logger.warning("database %s: no answer to a commit", self._target.name)
        deadline = time.monotonic() + self._target.patience_seconds
        for pause in pauses():
            try:
                self._ensure_connection()
                sql_text = "SELECT pg_xact_status(%s::xid8)"
                row = self._connection.execute(sql_text, (number,)).fetchone()
            except psycopg.Error:
                row = None
            if row == ("committed",):
                return
            if row == ("aborted",):
                raise _LostError from error
            if time.monotonic() > deadline:
                break
            time.sleep(pause)
        raise StorageError(
            f"the database {self._target.name} went away before it answered: "
            "whether this was stored is not known"
        ) from error

    def _wait(self, units: list[Unit], error: Exception) -> list[Unit]:
        """Return once the database is there again, with the units whose time is not up."""
        cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
        logger.warning("database %s: the connection was lost", self._target.name)
        for pause in pauses():
            try:
                self._ensure_connection()
                return units
            except psycopg.Error as failure:
                cause = failure
            units = self._expire(units, explain(cause, self._target))
            if not units:
                return []
            time.sleep(pause)
        return units

    def _expire(self, units: list[Unit], error: Exception) -> list[Unit]:
        """Fail what has waited too long, here and in the queue; return what is left of `units`."""
        oldest = time.monotonic() - self._target.patience_seconds
        with self._gate:
            late = []
            while self._queue and self._queue[0].asked_at < oldest:
                late.append(self._queue.popleft())
        late = [unit for unit in units if unit.asked_at < oldest] + late
        _fail(late, error)
        deliver(late)
        return [unit for unit in units if unit.asked_at >= oldest]

    def _ensure_connection(self) -> None:
        if is_lost(self._connection):
            self._connection = connect(self._target)
            self._opened_at = time.monotonic()

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK", prepare=False)
        except psycopg.Error as error:
            raise _LostError from error


class _LostError(Exception):
    """The connection is gone, and nothing of the transaction was committed."""


class _AgainError(Exception):
    """The work was in the way of another process and may go well the next time."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def pauses() -> Iterator[float]:
    """Yield the seconds between tries to reach a database that is away."""
    return chain((0.02, 0.05, 0.1, 0.2, 0.5), repeat(1.0))


def _fail(units: Iterable[Unit], error: Exception) -> int:
    count = 0
    for unit in units:
        unit.error = error
        count += 1
    return count
