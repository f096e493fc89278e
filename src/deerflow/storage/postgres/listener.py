"""Receive the signals of other processes with LISTEN, on a dedicated connection.

While the connection is lost, waiters poll the database when their wait times out.
"""

import logging
import os
import select
import threading

import psycopg
from psycopg import sql

from deerflow.storage.postgres.connect import HASTY_SECONDS, Connection, Target, connect
from deerflow.storage.postgres.writer import pauses
from deerflow.storage.signals import Signals

logger = logging.getLogger(__name__)


class Listener:
    """Listens in its own thread, and reconnects whenever the connection is lost."""

    def __init__(self, target: Target, signals: Signals) -> None:
        self._target = target
        self._signals = signals
        self._closing = threading.Event()
        self._wakes, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="deerflow-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        os.write(self._wake, b"x")
        self._thread.join(HASTY_SECONDS)
        if not self._thread.is_alive():  # otherwise it is still connecting to a server that does not respond
            os.close(self._wake)
            os.close(self._wakes)

    def _run(self) -> None:
        tries = pauses()
        while not self._closing.is_set():
            try:
                with connect(self._target) as connection:
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._target.channel)))
                    tries = pauses()
                    self._signals.notify_all()  # signals sent while disconnected were lost
                    self._signals.is_connected = True
                    self._listen(connection)
            except psycopg.Error:
                if self._signals.is_connected:
                    logger.warning("database %s: signals of others are lost for now", self._target.name)
            finally:
                self._signals.is_connected = False
            self._closing.wait(next(tries))

    def _listen(self, connection: Connection) -> None:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._wakes, select.POLLIN)
        while not self._closing.is_set():
            waiting.poll()
            connection.pgconn.consume_input()
            topics = []
            while (notice := connection.pgconn.notifies()) is not None:
                topics.append(notice.extra.decode())
            self._signals.notify(topics)
