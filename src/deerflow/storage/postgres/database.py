"""A PostgreSQL connection inside a transaction, as a `Database` for the stores."""

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from deerflow.storage.database import Rows
from deerflow.storage.postgres import dispatch
from deerflow.storage.postgres.dialect import POSTGRES, translated
from deerflow.storage.postgres.line import Line
from deerflow.storage.signals import QUEUE

logger = logging.getLogger(__name__)


class ContendedError(Exception):
    """Another process holds a lock that this unit needs, and this transaction already holds locks itself."""


class PostgresDatabase:
    """Statements of one transaction."""

    dialect = POSTGRES

    def __init__(self, line: Line, *, may_block: bool = True, echo: bool = False) -> None:
        self._line = line
        self._echo = echo
        self.may_block = may_block
        """This transaction holds no locks that others wait for, so it may block."""
        self.has_written = False
        self.told: dict[str, None] = {}
        """The topics to signal with the commit, in order."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        """Run one statement."""
        if self._echo:
            logger.info("sql %s", " ".join(sql.split()))
        if not self.has_written and not sql.startswith("SELECT"):
            self.has_written = True
        return self._line.execute(translated(sql), values, binary=True)

    def hold(self, thread_id: str, /) -> None:
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
        self.told[topic] = None

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Add a job that becomes visible when the transaction commits."""
        dispatch.enqueue(self, run_id, start_at)
        if start_at is None:
            self.notify(QUEUE)

    def dequeue(self, run_id: str, /) -> None:
        """Delete the job unless a worker has fetched it."""
        dispatch.dequeue(self, run_id)
