"""The thread that writes to PostgreSQL, with group commit: queued units are committed together.

A unit that fails is removed from its group, and the others run again without it. Every transaction
stores its number in a row of this process. When a commit gets no response, that row tells whether it was
applied, so that nothing happens twice and nothing that was acknowledged is lost. (PostgreSQL's own
transaction ids cannot be used: after a crash they may be reused.)
"""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat

import psycopg
from psycopg import sql
from typing_extensions import override

from deerflow.errors import DeerFlowError, StorageAwayError, StorageError
from deerflow.storage.postgres.connect import HASTY_SECONDS, Target, explain, may_pass
from deerflow.storage.postgres.database import ContendedError, PostgresDatabase
from deerflow.storage.postgres.line import Line
from deerflow.storage.write_queue import Unit, UnitQueue, deliver

logger = logging.getLogger(__name__)

_JOIN = """
WITH forgotten AS (DELETE FROM writers WHERE touched_at < now() - interval '7 days')
INSERT INTO writers VALUES (%s, 0, now())
"""
_COMMIT = """
INSERT INTO writers VALUES ({id}, {number}, now())
ON CONFLICT (id) DO UPDATE SET commits = excluded.commits, touched_at = excluded.touched_at;
SELECT pg_notify({channel}, topic) FROM unnest({topics}::text[]) AS topic;
COMMIT
"""
_LOOK_UP = "SELECT commits FROM writers WHERE id = %s FOR UPDATE"
_LEAST_SECONDS = 5.0
"""Minimum time to look up an unanswered commit, however long the caller has waited."""
_TRIES = 10
"""Maximum number of tries of a unit after deadlocks or serialization failures."""


class Writer(UnitQueue):
    """Runs units one after another in one thread, many per transaction."""

    def __init__(self, target: Target, line: Line) -> None:
        """Start the thread.

        Args:
            line: An open connection.
        """
        self._target = target
        self._line = line
        self._id = uuid.uuid4().hex
        self._commits = 0
        self._patience_seconds = target.patience_seconds
        line.execute(_JOIN, (self._id,))
        super().__init__(target.name)

    def shorten_timeouts(self) -> None:
        """Stop waiting for an unreachable database: it may never come back."""
        self._patience_seconds = min(self._patience_seconds, HASTY_SECONDS)

    @override
    def close(self) -> None:
        self.shorten_timeouts()
        super().close()
        if not self._line.is_lost:
            with suppress(psycopg.Error):  # otherwise the row is deleted later, by age
                self._line.execute("DELETE FROM writers WHERE id = %s", (self._id,))

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
            except Exception:
                self._line.close()  # discards the transaction: the next one must not commit its changes
                raise
            else:
                # A unit that breaks its group: commit those before it first, then it is the first of the
                # rest.
                done = len(group) if spoilt is None else int(spoilt == 0)
                size = spoilt or len(units)
            if done:
                deliver(group[:done])
                units = units[done:]
                size, tries = len(units), 0

    def _try(self, group: Sequence[Unit]) -> int | None:
        """Run these units in one transaction; return the index of the one that broke it, else None."""
        self._begin()
        db = PostgresDatabase(self._line, echo=self._target.echo_sql)
        for index, unit in enumerate(group):
            # Only the first unit may block: it holds no locks yet; otherwise two processes could deadlock.
            db.may_block, db.has_written = index == 0, False
            if not self._one(db, unit):
                self._roll_back()
                return index
        self._commit(db.told, group[0].asked_at)
        return None

    def _one(self, db: PostgresDatabase, unit: Unit) -> bool:
        """Run one unit; return False when it broke the transaction."""
        try:
            unit.result, unit.error = unit.work(db), None
        except ContendedError:
            return False
        except psycopg.Error as error:
            if self._line.is_lost:
                raise _LostError from error
            if may_pass(error) and db.may_block:
                self._roll_back()
                raise _AgainError(error) from error
            unit.error = explain(error, self._target)
            return False
        except Exception as error:  # any exception belongs to the caller
            unit.error = explain(error, self._target)
            # A unit that has only read left nothing to undo.
            return isinstance(error, DeerFlowError) and not db.has_written
        return True

    def _begin(self) -> None:
        try:
            self._line.open()
            self._line.execute("BEGIN", prepare=False)
        except psycopg.Error as error:
            raise _LostError from error

    def _commit(self, topics: Collection[str], asked_at: float) -> None:
        number = self._commits + 1
        # One statement text: number, signals and commit take one round trip.
        statement = sql.SQL(_COMMIT).format(
            id=self._id, number=number, channel=self._target.channel, topics=list(topics)
        )
        try:
            self._line.execute(statement, prepare=False)
        except psycopg.Error as error:
            if not self._line.is_lost:
                self._roll_back()
                raise explain(error, self._target) from error
            self._find_out(number, asked_at, error)
        self._commits = number

    def _find_out(self, number: int, asked_at: float, error: psycopg.Error) -> None:
        """Return if the transaction was committed after all; raise `_LostError` if it was not."""
        logger.warning("database %s: no answer to a commit", self._target.name)
        began_at = time.monotonic()
        for pause in pauses():
            try:
                self._line.open()
                # FOR UPDATE waits for the transaction if the server is still executing it.
                row = self._line.execute(_LOOK_UP, (self._id,)).fetchone()
            except psycopg.Error:
                row = None
            if row == (number,):
                return
            if row is not None:
                raise _LostError from error
            least = min(_LEAST_SECONDS, self._patience_seconds)
            if time.monotonic() > max(asked_at + self._patience_seconds, began_at + least):
                break
            time.sleep(pause)
        raise StorageAwayError(
            f"the database {self._target.name} went away before it answered: "
            "whether this was stored is not known"
        ) from error

    def _wait(self, units: list[Unit], error: Exception) -> list[Unit]:
        """Return once the database is reachable again, with the units that have not timed out."""
        cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
        logger.warning("database %s: the connection was lost", self._target.name)
        for pause in pauses():
            try:
                self._line.open()
                return units
            except psycopg.Error as failure:
                cause = failure
            units = self._expire(units, explain(cause, self._target))
            if not units:
                return []
            time.sleep(pause)
        return units

    def _expire(self, units: list[Unit], error: Exception) -> list[Unit]:
        """Fail units that have waited too long, here and in the queue; return the rest of `units`."""
        oldest = time.monotonic() - self._patience_seconds
        with self._gate:
            late = []
            while self._queue and self._queue[0].asked_at < oldest:
                late.append(self._queue.popleft())
        late = [unit for unit in units if unit.asked_at < oldest] + late
        _fail(late, error)
        deliver(late)
        return [unit for unit in units if unit.asked_at >= oldest]

    def _roll_back(self) -> None:
        try:
            self._line.execute("ROLLBACK", prepare=False)
        except psycopg.Error as error:
            raise _LostError from error


class _LostError(Exception):
    """The connection is lost, and nothing of the transaction was committed."""


class _AgainError(Exception):
    """The work conflicted with another process and may succeed when retried."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def pauses() -> Iterator[float]:
    """Yield the seconds between attempts to reach an unreachable database."""
    return chain((0.02, 0.05, 0.1, 0.2, 0.5), repeat(1.0))


def _fail(units: Iterable[Unit], error: Exception) -> int:
    count = 0
    for unit in units:
        unit.error = error
        count += 1
    return count
