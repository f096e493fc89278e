"""Connect to one PostgreSQL database, supervise its connections, and explain its errors to an operator.

The server ends statements that take longer than `database.command_timeout`. A server that does not respond
at all (stopped, or behind a network that drops packets) would block its caller for ever, so a statement
without a response for too long is aborted from here.
"""

import hashlib
import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from deerflow.config import DatabaseSettings
from deerflow.errors import ConfigError, InvalidInputError, StorageAwayError, StorageError

Connection = psycopg.Connection[tuple[Any, ...]]

DEFAULT_TIMEOUT_SECONDS = 30.0
"""How long callers wait for an unreachable database when statements have no timeout."""
EXIT_SECONDS = 2
"""How long an exiting process waits for an unreachable database."""
_IDLE_SECONDS = 5
"""The server ends a transaction that is idle for this long: its process was stopped."""
_GRACE_SECONDS = 2.0
"""How much longer than the server's timeout we wait."""
_CHECK_SECONDS = 1.0
_DEFAULTS: dict[str, str | int] = {
    "application_name": "deerflow",
    "connect_timeout": 10,
    # TCP keepalives detect a server that vanished silently, however long a statement may take.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
_EXAMPLE = "postgresql://user:password@host:5432/database"


@dataclass(frozen=True, slots=True)
class Target:
    """Connection parameters of one database."""

    conninfo: str = field(repr=False)
    name: str
    """For messages: without the password."""
    schema: str
    command_timeout: float | None
    recycle_seconds: float
    """Age at which a connection is replaced."""
    echo_sql: bool
    exiting: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when this process is about to exit: then nothing waits long for the server."""

    @property
    def channel(self) -> str:
        """Notification channel for signals, one per schema: a database may hold several."""
        return f"deerflow_{hashlib.blake2b(self.schema.encode(), digest_size=6).hexdigest()}"

    @property
    def timeout_seconds(self) -> float:
        """How long callers wait for an unreachable database."""
        seconds = self.command_timeout or DEFAULT_TIMEOUT_SECONDS
        return min(seconds, EXIT_SECONDS) if self.exiting.is_set() else seconds


def target_of(settings: DatabaseSettings) -> Target:
    """Return the target that the settings name; raise `ConfigError` when they are invalid."""
    url = settings.postgres_url.strip()
    if not url:
        raise ConfigError(f"database.backend 'postgres' needs database.postgres_url, such as {_EXAMPLE}")
    if settings.postgres_schema and not _SCHEMA.fullmatch(settings.postgres_schema):
        raise ConfigError("database.postgres_schema is a name of up to 63 letters, digits and '_'")
    parts = _parts(re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url))
    options = {key: value for key, value in _DEFAULTS.items() if key not in parts}
    if settings.postgres_schema:
        # Set in the connection string: every connection opened with it uses the same schema.
        options["options"] = f'{parts.pop("options", "")} -c search_path="{settings.postgres_schema}"'.strip()
    host, port = parts.get("host", "localhost"), parts.get("port", "5432")
    return Target(
        conninfo=make_conninfo("", **parts, **options),
        name=f"{parts.get('dbname') or parts.get('user') or 'postgres'} at {host}:{port}",
        schema=settings.postgres_schema,
        command_timeout=settings.command_timeout,
        recycle_seconds=settings.pool_recycle,
        echo_sql=settings.echo_sql,
    )


def connect(target: Target) -> Connection:
    """Open a connection in autocommit mode; the caller begins transactions."""
    limits = {"connect_timeout": EXIT_SECONDS} if target.exiting.is_set() else {}
    connection: Connection = psycopg.connect(make_conninfo(target.conninfo, **limits), autocommit=True)
    # One type for all integers, so that each statement is prepared once.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    limit = int((target.command_timeout or 0) * 1000)
    connection.execute(
        f"SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {_IDLE_SECONDS * 1000}; "
        "SET default_transaction_isolation = 'read committed'; SET client_encoding = 'UTF8'",
        prepare=False,
    )
    return connection


def first_connection(target: Target) -> Connection:
    """Open a connection at startup; failures are the operator's to fix, so they raise `ConfigError`."""
    deadline = time.monotonic() + target.timeout_seconds
    while True:
        try:
            return connect(target)
        except psycopg.Error as error:
            if not isinstance(error, errors.CannotConnectNow) and "starting up" not in str(error):
                raise ConfigError(_startup_error(error, target)) from None
            if time.monotonic() > deadline:
                raise ConfigError(f"the database {target.name} is still starting up") from error
        time.sleep(0.1)


class SupervisedConnection:
    """One connection, opened on demand and reopened when it is too old or lost."""

    def __init__(self, target: Target, connection: Connection | None = None) -> None:
        self._target = target
        self._connection = connection
        self._opened_at = time.monotonic()
        self._socket = None if connection is None else _socket_of(connection)
        self._busy_since: float | None = None

    @property
    def is_lost(self) -> bool:
        """The connection is closed or broken."""
        return self._connection is None or self._connection.closed or self._connection.broken

    def open(self) -> None:
        """Ensure that there is a connection; call it between transactions."""
        is_old = time.monotonic() - self._opened_at > self._target.recycle_seconds
        if self.is_lost or is_old:
            self.close()
            self._connection = connect(self._target)
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

    def abort_if_hung(self, limit_seconds: float) -> None:
        """Abort a statement that gets no response; called from another thread."""
        since, open_socket = self._busy_since, self._socket
        if since is not None and open_socket is not None and time.monotonic() - since > limit_seconds:
            try:
                open_socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it was closed meanwhile


class Watchdog:
    """Periodically checks connections for hung statements, in its own thread."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connections: list[SupervisedConnection] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deerflow-watchdog", daemon=True)
        self._thread.start()

    def watch(self, connection: SupervisedConnection) -> None:
        """Supervise one more connection."""
        self._connections.append(connection)

    def close(self) -> None:
        """End the thread and close all connections."""
        self._closing.set()
        self._thread.join()
        for connection in self._connections:
            connection.close()

    def _run(self) -> None:
        limit = (self._target.command_timeout or math.inf) + _GRACE_SECONDS
        while not self._closing.wait(_CHECK_SECONDS):
            for connection in tuple(self._connections):
                connection.abort_if_hung(min(limit, EXIT_SECONDS) if self._target.exiting.is_set() else limit)


def retry_pauses() -> Iterator[float]:
    """Yield the seconds between attempts to reach an unreachable database."""
    return chain((0.02, 0.05, 0.1, 0.2, 0.5), repeat(1.0))


def _socket_of(connection: Connection) -> socket.socket:
    # A duplicate: the original descriptor number may be reused at any time.
    return socket.socket(fileno=os.dup(connection.fileno()))


def may_retry(error: BaseException) -> bool:
    """Return whether an immediate retry of the same work may succeed."""
    return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)


def explain(error: Exception, target: Target) -> Exception:
    """Return the storage exception for a driver exception; any other is returned unchanged."""
    match error:
        case UnicodeEncodeError():
            return InvalidInputError("the text holds characters that are not valid Unicode (lone surrogates)")
        case errors.DataError() | OverflowError():
            return InvalidInputError(f"the database cannot hold this value: {_first_line(error)}")
        case errors.QueryCanceled():
            return StorageError(
                f"the database {target.name} took longer than database.command_timeout "
                f"({target.command_timeout:g}s)"
            )
        case errors.DiskFull():
            return StorageError(f"no space left for the database {target.name}: free some disk space")
        case errors.InsufficientPrivilege():
            return StorageError(
                f"the user of database.postgres_url may not do this in {target.name}: {_first_line(error)}"
            )
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StorageAwayError(
                f"the database {target.name} cannot be reached: {_without_password(error, target)}"
            )
        case psycopg.Error():
            return StorageError(f"the database {target.name} failed: {_first_line(error)}")
    return error


def _parts(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError as error:
        unknown = re.match(r'invalid (?:URI query parameter|connection option)[: ]+"(\w+)"', str(error))
        hint = f": it has no option '{unknown[1]}'" if unknown else ""
        # The driver's message repeats the URL with its password.
        raise ConfigError(f"database.postgres_url is no PostgreSQL URL{hint}; use {_EXAMPLE}") from None


def _startup_error(error: psycopg.Error, target: Target) -> str:
    text = _without_password(error, target)
    if "password authentication failed" in text or "no password supplied" in text:
        hint = "check user and password in database.postgres_url"
    elif "does not exist" in text:
        hint = "create it, or name another one in database.postgres_url"
    elif "no pg_hba.conf entry" in text:
        hint = "allow this machine in the server's pg_hba.conf"
    else:
        hint = "start the server, or name another one in database.postgres_url"
    return f"cannot open the database {target.name}: {text}; {hint}"


def _without_password(error: Exception, target: Target) -> str:
    secret = conninfo_to_dict(target.conninfo).get("password")
    text = _first_line(error)
    return text.replace(str(secret), "***") if secret else text


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
