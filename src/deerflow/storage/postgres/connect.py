"""Connect to one PostgreSQL database, and turn driver errors into messages that an operator can act on."""

import hashlib
import logging
import re
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from deerflow.config import DatabaseSettings
from deerflow.errors import ConfigError, InvalidInputError, StorageAwayError, StorageError

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE_SECONDS = 30.0
"""How long callers wait for an unreachable database when statements have no timeout."""
HASTY_SECONDS = 2
"""How long an exiting process waits for an unreachable database."""
_IDLE_SECONDS = 5
"""The server ends a transaction that is idle for this long: its process was stopped."""
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
    echo_sql: bool

    @property
    def channel(self) -> str:
        """Notification channel for signals, one per schema: a database may hold several."""
        return f"deerflow_{hashlib.blake2b(self.schema.encode(), digest_size=6).hexdigest()}"

    @property
    def patience_seconds(self) -> float:
        """How long callers wait for an unreachable database."""
        return self.command_timeout or PATIENCE_SECONDS


def target_of(settings: DatabaseSettings) -> Target:
    """Return the target that the settings name; raise `ConfigError` when they are invalid."""
    url = settings.postgres_url.strip()
    if not url:
        raise ConfigError(f"database.backend 'postgres' needs database.postgres_url, such as {_EXAMPLE}")
    if settings.postgres_schema and not _SCHEMA.fullmatch(settings.postgres_schema):
        raise ConfigError("database.postgres_schema is a name of up to 63 letters, digits and '_'")
    parts = _parts(re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url))
    where = {key: value for key, value in _DEFAULTS.items() if key not in parts}
    if settings.postgres_schema:
        # Set in the connection string: every connection opened with it uses the same schema.
        where["options"] = f'{parts.pop("options", "")} -c search_path="{settings.postgres_schema}"'.strip()
    host, port = parts.get("host", "localhost"), parts.get("port", "5432")
    return Target(
        conninfo=make_conninfo("", **parts, **where),
        name=f"{parts.get('dbname') or parts.get('user') or 'postgres'} at {host}:{port}",
        schema=settings.postgres_schema,
        command_timeout=settings.command_timeout,
        echo_sql=settings.echo_sql,
    )


def connect(target: Target, *, hasty: bool = False) -> Connection:
    """Open a connection in autocommit mode; the caller begins transactions.

    Args:
        hasty: Use a short timeout, since this process is about to exit.
    """
    where = make_conninfo(target.conninfo, connect_timeout=HASTY_SECONDS) if hasty else target.conninfo
    connection: Connection = psycopg.connect(where, autocommit=True)
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
    deadline = time.monotonic() + target.patience_seconds
    while True:
        try:
            return connect(target)
        except errors.CannotConnectNow as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"the database {target.name} is still starting up") from error
            time.sleep(0.1)
        except psycopg.Error as error:
            if "starting up" in str(error) and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            raise ConfigError(_why(error, target)) from None


def may_pass(error: BaseException) -> bool:
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
            return StorageAwayError(f"the database {target.name} cannot be reached: {_safe(error, target)}")
        case psycopg.Error():
            return StorageError(f"the database {target.name} failed: {_first_line(error)}")
    return error


def _parts(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError as error:
        odd = re.match(r'invalid (?:URI query parameter|connection option)[: ]+"(\w+)"', str(error))
        hint = f": it has no option '{odd[1]}'" if odd else ""
        # The driver's message repeats the URL with its password.
        raise ConfigError(f"database.postgres_url is no PostgreSQL URL{hint}; use {_EXAMPLE}") from None


def _why(error: psycopg.Error, target: Target) -> str:
    said = _safe(error, target)
    if "password authentication failed" in said or "no password supplied" in said:
        hint = "check user and password in database.postgres_url"
    elif "does not exist" in said:
        hint = "create it, or name another one in database.postgres_url"
    elif "no pg_hba.conf entry" in said:
        hint = "allow this machine in the server's pg_hba.conf"
    else:
        hint = "start the server, or name another one in database.postgres_url"
    return f"cannot open the database {target.name}: {said}; {hint}"


def _safe(error: Exception, target: Target) -> str:
    secret = conninfo_to_dict(target.conninfo).get("password")
    said = _first_line(error)
    return said.replace(str(secret), "***") if secret else said


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
