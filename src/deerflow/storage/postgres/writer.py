"""The thread that writes to PostgreSQL, with group commit: queued jobs are committed together.

A job that fails is removed from its group, and the others run again without it. Every transaction
stores its number in a row of this process. When a commit gets no response, that row tells whether it was
applied, so that nothing happens twice and nothing that was acknowledged is lost. (PostgreSQL's own
transaction ids cannot be used: after a crash they may be reused.)
"""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import psycopg
from psycopg import sql
from typing_extensions import override

from deerflow.errors import DeerFlowError, StorageAwayError, StorageError
from deerflow.storage.postgres.connection import (
    SupervisedConnection,
    Target,
    explain,
    may_retry,
    retry_pauses,
)
from deerflow.storage.postgres.database import ContendedError, PostgresDatabase
from deerflow.storage.write_queue import WriteJob, WriteQueue, deliver

logger = logging.getLogger(__name__)

_REGISTER = """
WITH expired AS (DELETE FROM writers WHERE touched_at < now() - interval '7 days')
INSERT INTO writers VALUES (%s, 0, now())
"""
_COMMIT = """
INSERT INTO writers VALUES ({id}, {number}, now())
ON CONFLICT (id) DO UPDATE SET commits = excluded.commits, touched_at = excluded.touched_at;
SELECT pg_notify({channel}, topic) FROM unnest({topics}::text[]) AS topic;
COMMIT
"""
_LOOKUP = "SELECT commits FROM writers WHERE id = %s FOR UPDATE"
_MIN_LOOKUP_SECONDS = 5.0
"""Minimum time to look up an unanswered commit, however long the caller has waited."""
_TRIES = 10
"""Maximum number of tries of a job after deadlocks or serialization failures."""


class PostgresWriter(WriteQueue):
    """Runs jobs one after another in one thread, many per transaction."""

    def __init__(self, target: Target, connection: SupervisedConnection) -> None:
        """Start the thread.

        Args:
            connection: An open connection.
        """
        self._target = target
        self._connection = connection
        self._id = uuid.uuid4().hex
        self._commits = 0
        connection.execute(_REGISTER, (self._id,))
        super().__init__(target.name)

    @override
    def close(self) -> None:
        super().close()
        if not self._connection.is_lost:
            with suppress(psycopg.Error):  # otherwise the row is deleted later, by age
                self._connection.execute("DELETE FROM writers WHERE id = %s", (self._id,))

    @override
    def _write(self, jobs: list[WriteJob]) -> None:
        size, tries = len(jobs), 0
        while jobs:
            group, done = jobs[:size], 0
            try:
                failed_index = self._try_group(group)
            except _LostError as error:
                jobs = self._wait_for_connection(jobs, error)
            except _RetryError as error:
                tries += 1
                done = 0 if tries < _TRIES else _fail(group[:1], explain(error.cause, self._target))
            except StorageError as error:
                done = _fail(group, error)
            except Exception:
                self._connection.close()  # discards the transaction: the next one must not commit its changes
                raise
            else:
                # A job that breaks its group: commit those before it first, then it is the first of the
                # rest.
                done = len(group) if failed_index is None else int(failed_index == 0)
                size = failed_index or len(jobs)
            if done:
                deliver(group[:done])
                jobs = jobs[done:]
                size, tries = len(jobs), 0

    def _try_group(self, group: Sequence[WriteJob]) -> int | None:
        """Run these jobs in one transaction; return the index of the one that broke it, else None."""
        self._begin()
        db = PostgresDatabase(self._connection, echo=self._target.echo_sql)
        for index, job in enumerate(group):
            # Only the first job may block: it holds no locks yet; otherwise two processes could deadlock.
            db.may_block, db.has_written = index == 0, False
            if not self._run_job(db, job):
                self._roll_back()
                return index
        self._commit(db.topics, group[0].queued_at)
        return None

    def _run_job(self, db: PostgresDatabase, job: WriteJob) -> bool:
        """Run one job; return False when it broke the transaction."""
        try:
            job.result, job.error = job.work(db), None
        except ContendedError:
            return False
        except psycopg.Error as error:
            if self._connection.is_lost:
                raise _LostError from error
            if may_retry(error) and db.may_block:
                self._roll_back()
                raise _RetryError(error) from error
            job.error = explain(error, self._target)
            return False
        except Exception as error:  # any exception belongs to the caller
            job.error = explain(error, self._target)
            # A job that has only read left nothing to undo.
            return isinstance(error, DeerFlowError) and not db.has_written
        return True

    def _begin(self) -> None:
        try:
            self._connection.open()
            self._connection.execute("BEGIN", prepare=False)
        except psycopg.Error as error:
            raise _LostError from error

    def _commit(self, topics: Collection[str], queued_at: float) -> None:
        number = self._commits + 1
        # One statement text: number, signals and commit take one round trip.
        statement = sql.SQL(_COMMIT).format(
            id=self._id, number=number, channel=self._target.channel, topics=list(topics)
        )
        try:
            self._connection.execute(statement, prepare=False)
        except psycopg.Error as error:
            if not self._connection.is_lost:
                self._roll_back()
                raise explain(error, self._target) from error
            self._confirm_commit(number, queued_at, error)
        self._commits = number

    def _confirm_commit(self, number: int, queued_at: float, error: psycopg.Error) -> None:
        """Return if the transaction was committed after all; raise `_LostError` if it was not."""
        logger.warning("database %s: no answer to a commit", self._target.name)
        began_at = time.monotonic()
        for pause in retry_pauses():
            try:
                self._connection.open()
                # FOR UPDATE waits for the transaction if the server is still executing it.
                row = self._connection.execute(_LOOKUP, (self._id,)).fetchone()
            except psycopg.Error:
                row = None
            if row == (number,):
                return
            if row is not None:
                raise _LostError from error
            minimum = min(_MIN_LOOKUP_SECONDS, self._target.timeout_seconds)
            if time.monotonic() > max(queued_at + self._target.timeout_seconds, began_at + minimum):
                break
            time.sleep(pause)
        raise StorageAwayError(
            f"the database {self._target.name} went away before it answered: "
            "whether this was stored is not known"
        ) from error

    def _wait_for_connection(self, jobs: list[WriteJob], error: Exception) -> list[WriteJob]:
        """Return once the database is reachable again, with the jobs that have not timed out."""
        cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
        logger.warning("database %s: the connection was lost", self._target.name)
        for pause in retry_pauses():
            try:
                self._connection.open()
                return jobs
            except psycopg.Error as failure:
                cause = failure
            jobs = self._expire(jobs, explain(cause, self._target))
            if not jobs:
                return []
            time.sleep(pause)
        return jobs

    def _expire(self, jobs: list[WriteJob], error: Exception) -> list[WriteJob]:
        """Fail jobs that have waited too long, here and in the queue; return the rest of `jobs`."""
        oldest = time.monotonic() - self._target.timeout_seconds
        with self._lock:
            late = []
            while self._queue and self._queue[0].queued_at < oldest:
                late.append(self._queue.popleft())
        late = [job for job in jobs if job.queued_at < oldest] + late
        _fail(late, error)
        deliver(late)
        return [job for job in jobs if job.queued_at >= oldest]

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK", prepare=False)
        except psycopg.Error as error:
            raise _LostError from error


class _LostError(Exception):
    """The connection is lost, and nothing of the transaction was committed."""


class _RetryError(Exception):
    """The work conflicted with another process and may succeed when retried."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _fail(jobs: Iterable[WriteJob], error: Exception) -> int:
    count = 0
    for job in jobs:
        job.error = error
        count += 1
    return count
