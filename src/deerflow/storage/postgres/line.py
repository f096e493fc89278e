"""A supervised connection: a statement without a response for too long is aborted.

The server ends statements that take longer than `database.command_timeout`. A server that does not respond
at all (stopped, or behind a network that drops packets) would block its caller for ever.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from deerflow.storage.postgres.connect import HASTY_SECONDS, Connection, Target, connect

_GRACE_SECONDS = 2.0
"""How much longer than the server's timeout we wait."""
_LOOK_SECONDS = 1.0


class Line:
    """One connection, opened on demand and reopened when it is too old or lost."""

    def __init__(
        self, target: Target, connection: Connection | None = None, *, recycle_seconds: float
    ) -> None:
        self._target = target
        self._recycle_seconds = recycle_seconds
        self._connection = connection
        self._opened_at = time.monotonic()
        self._socket = None if connection is None else _socket_of(connection)
        self._busy_since: float | None = None
        self.is_hasty = False
        """This process is about to exit: do not wait for a server that does not respond."""

    @property
    def is_lost(self) -> bool:
        """The connection is closed or broken."""
        return self._connection is None or self._connection.closed or self._connection.broken

    def open(self) -> None:
        """Ensure that there is a connection; call it between transactions."""
        is_old = time.monotonic() - self._opened_at > self._recycle_seconds
        if self.is_lost or is_old:
            self.close()
            self._connection = connect(self._target, hasty=self.is_hasty)
            self._socket = _socket_of(self._connection)
            self._opened_at = time.monotonic()

    def execute(
        self,
        statement: str | sql.SQL | sql.Composed,
        values: Sequence[Any] | None = None,
        *,
        prepare: bool | None = None,
        binary: bool = False,
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        """Run one statement."""
        assert self._connection is not None
        self._busy_since = time.monotonic()
        try:
            return self._connection.execute(statement, values, prepare=prepare, binary=binary)
        finally:
            self._busy_since = None

    def close(self) -> None:
        """Close the connection; it can be opened again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def cut_if_hung(self, limit_seconds: float) -> None:
        """Abort a statement that gets no response; called from another thread."""
        since, line = self._busy_since, self._socket
        if since is not None and line is not None and time.monotonic() - since > limit_seconds:
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it was closed meanwhile


class Watchdog:
    """Periodically checks connections for hung statements, in its own thread."""

    def __init__(self, target: Target) -> None:
        self._limit_seconds = (target.command_timeout or math.inf) + _GRACE_SECONDS
        self._lines: list[Line] = []
        self._is_hasty = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deerflow-watchdog", daemon=True)
        self._thread.start()

    def watch(self, line: Line) -> None:
        """Supervise one more connection."""
        line.is_hasty = self._is_hasty
        self._lines.append(line)

    def shorten_timeouts(self) -> None:
        """From now on abort unanswered statements after a short time."""
        self._is_hasty = True
        self._limit_seconds = min(self._limit_seconds, HASTY_SECONDS)
        for line in tuple(self._lines):
            line.is_hasty = True

    def close(self) -> None:
        """End the thread and close all connections."""
        self._closing.set()
        self._thread.join()
        for line in self._lines:
            line.close()

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            for line in tuple(self._lines):
                line.cut_if_hung(self._limit_seconds)


def _socket_of(connection: Connection) -> socket.socket:
    # A duplicate: the original descriptor number may be reused at any time.
    return socket.socket(fileno=os.dup(connection.fileno()))
