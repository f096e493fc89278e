"""A PostgreSQL connection inside a transaction, as a `Database` for the stores, and its SQL dialect."""

import functools
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import orjson

from deerflow.storage.database import Dialect, Rows
from deerflow.storage.encoding import dump_json
from deerflow.storage.postgres.connection import SupervisedConnection
from deerflow.storage.postgres.text_index import PostgresTextIndex
from deerflow.storage.signals import QUEUE

logger = logging.getLogger(__name__)

JOB_QUEUE = "deerflow"
JOB_TASK = "deerflow.run"
# A run has at most one waiting job. Its thread is locked, so no job can be added between check and insert.
_DEFER = """
SELECT procrastinate_defer_jobs_v1(ARRAY[
    ROW(?, ?, 0, NULL, ?, CAST(? AS JSONB), to_timestamp(CAST(? AS DOUBLE PRECISION)))
]::procrastinate_job_to_defer_v1[])
WHERE NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo')
"""


@functools.lru_cache(maxsize=1024)
def _with_driver_placeholders(sql: str) -> str:
    """Return a statement with the driver's placeholders instead of question marks."""
    return sql.replace("%", "%%").replace("?", "%s")


def _has_metadata(path: Sequence[str], wanted: Any) -> tuple[str, list[Any]]:
    found = " -> ".join(["CAST(metadata AS JSON)", *("?" for _ in path)])
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        # 1 and 1.0 are the same number; CASE keeps strings from being cast to numbers.
        test = (
            f"CASE json_typeof({found}) WHEN 'number' "
            f"THEN CAST(CAST({found} AS TEXT) AS NUMERIC) = ? ELSE false END"
        )
        return test, [*path, *path, wanted]
    # Metadata is stored as text with sorted keys, so equal values have equal text. `jsonb` cannot hold every
    # string, and one row that it rejects would fail the whole search.
    text = dump_json(wanted, what=f"metadata key '{'.'.join(path)}'", is_sorted=True).decode()
    return f"CAST({found} AS TEXT) = ?", [*path, text]


_LISTED = "json_array_elements_text(CAST(? AS JSON)) AS given (value)"

POSTGRES = Dialect(
    clock="CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
    by_flight="",
    # KEY SHARE: heartbeats and cancel requests may update the row meanwhile, a claim cannot.
    shared="FOR KEY SHARE OF runs",
    locked="FOR UPDATE",
    trusts_locks=False,
    is_text_of=f"= ANY (ARRAY(SELECT value FROM {_LISTED}))",
    is_number_of=f"= ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM {_LISTED}))",
    position="strpos",
    has_metadata=_has_metadata,
    text_index=PostgresTextIndex(),
)


class ContendedError(Exception):
    """Another process holds a lock that this job needs, and this transaction already holds locks itself."""


class PostgresDatabase:
    """Statements of one transaction."""

    dialect = POSTGRES

    def __init__(self, connection: SupervisedConnection, *, echo: bool) -> None:
        self._connection = connection
        self._echo = echo
        self.may_block = True
        """This transaction holds no locks that others wait for, so it may block."""
        self.has_written = False
        self.topics: dict[str, None] = {}
        """The topics to signal with the commit, in order."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        """Run one statement."""
        if self._echo:
            logger.info("sql %s", " ".join(sql.split()))
        if not self.has_written and not sql.startswith("SELECT"):
            self.has_written = True
        return self._connection.execute(_with_driver_placeholders(sql), values, binary=True)

    def lock_thread(self, thread_id: str, /) -> None:
        """Lock a thread until the transaction ends; do not block if the transaction has other work."""
        number = int.from_bytes(hashlib.blake2b(thread_id.encode(), digest_size=8).digest(), signed=True)
        if self.may_block:
            self.execute("SELECT pg_advisory_xact_lock(?)", (number,))
        else:
            (has_it,) = self.execute("SELECT pg_try_advisory_xact_lock(?)", (number,)).fetchone()
            if not has_it:
                raise ContendedError

    def notify(self, topic: str, /) -> None:
        """Remember the topic until the commit."""
        self.topics[topic] = None

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Add a procrastinate job that becomes visible when the transaction commits."""
        lock = _queueing_lock(run_id)
        args = orjson.dumps({"run_id": run_id}).decode()
        when = None if start_at is None else start_at / 1_000_000
        self.execute(_DEFER, (JOB_QUEUE, JOB_TASK, lock, args, when, lock))
        if start_at is None:
            self.notify(QUEUE)

    def dequeue(self, run_id: str, /) -> None:
        """Delete the job unless it was fetched."""
        sql = "DELETE FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo'"
        self.execute(sql, (_queueing_lock(run_id),))


def _queueing_lock(run_id: str) -> str:
    return f"{JOB_TASK}:{run_id}"
