"""Upgrade a PostgreSQL database to the newest schema; one process migrates while others wait."""

import importlib
from pathlib import Path

import psycopg
from psycopg import errors, sql

from deerflow.errors import ConfigError
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, known_revisions
from deerflow.storage.postgres.connect import Connection, Target, explain

_LOCK = 0x44454552
"""Advisory lock number of the process that migrates (`DEER`)."""


def migrate(target: Target, connection: Connection, *, folder: Path = FOLDER) -> None:
    """Create or upgrade the tables; refuse a database that is newer."""
    try:
        if _revision(connection) == known_revisions(folder)[-1]:
            return
        connection.execute("SET statement_timeout = 0")
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        try:
            _upgrade(target, connection, folder)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
            connection.execute(f"SET statement_timeout = {int((target.command_timeout or 0) * 1000)}")
    except errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"the user of database.postgres_url may not make tables in {target.name}: grant it CREATE on "
            f"the {'schema' if target.schema else 'database'}, or set database.postgres_schema to a schema "
            "of its own"
        ) from error
    except errors.DuplicateTable as error:
        raise ConfigError(
            f"the database {target.name} holds tables of another program or of DeerFlow 2: "
            "set database.postgres_schema to a schema of its own"
        ) from error
    except psycopg.Error as error:
        raise ConfigError(str(explain(error, target))) from error


def _upgrade(target: Target, connection: Connection, folder: Path) -> None:
    # Check first: CREATE SCHEMA IF NOT EXISTS needs the CREATE privilege even if the schema exists.
    known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (target.schema,))
    if target.schema and known.fetchone() is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(target.schema)))
    revision, revisions = _revision(connection), known_revisions(folder)
    if revision == revisions[-1]:
        return
    if revision is not None and revision not in revisions:
        raise ConfigError(
            f"the database {target.name} was written by a newer DeerFlow (schema {revision}, this one knows "
            f"{revisions[-1]}): update DeerFlow, or set database.postgres_schema to another schema"
        )
    # Imported late: alembic is slow to load and usually not needed.
    alembic = importlib.import_module("deerflow.storage.migrations.run")
    connection.autocommit = False
    try:
        alembic.upgrade("postgresql+psycopg", connection, folder=folder)
    finally:
        connection.rollback()
        connection.autocommit = True


def _revision(connection: Connection) -> str | None:
    found = connection.execute("SELECT to_regclass(%s)", (VERSION_TABLE,)).fetchone()
    if found is None or found[0] is None:
        return None
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return None if row is None else str(row[0])
