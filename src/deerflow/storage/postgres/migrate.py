"""Create or upgrade the tables of a PostgreSQL database; one process migrates while others wait."""

from importlib import resources
from pathlib import Path

import psycopg
from psycopg import errors, sql

from deerflow.errors import ConfigError
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, creation_script, known_revisions
from deerflow.storage.postgres.connection import Connection, Target, explain

_LOCK = 0x44454552
"""Advisory lock number of the process that migrates (`DEER`)."""


def migrate(target: Target, connection: Connection, *, folder: Path = FOLDER) -> None:
    """Create or upgrade the tables; refuse a database that is newer or holds tables of another program."""
    try:
        if _revision(connection) == known_revisions(folder)[-1]:
            return
        connection.execute("SET statement_timeout = 0")
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        try:
            _create_or_upgrade(target, connection, folder)
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


def _create_or_upgrade(target: Target, connection: Connection, folder: Path) -> None:
    # Check first: CREATE SCHEMA IF NOT EXISTS needs the CREATE privilege even if the schema exists.
    known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (target.schema,))
    if target.schema and known.fetchone() is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(target.schema)))
    revision, revisions = _revision(connection), known_revisions(folder)
    if revision is None:
        with connection.transaction():
            connection.execute(creation_script("postgres", folder).encode())
            if not _has_table(connection, "procrastinate_jobs"):
                schema = resources.files("procrastinate.sql") / "schema.sql"
                connection.execute(schema.read_bytes())
    elif revision not in revisions:
        raise ConfigError(
            f"the database {target.name} was written by a newer DeerFlow (schema {revision}, this one knows "
            f"{revisions[-1]}): update DeerFlow, or set database.postgres_schema to another schema"
        )
    elif revision != revisions[-1]:
        from deerflow.storage.migrations.upgrade import upgrade  # noqa: PLC0415 - slow to load

        connection.autocommit = False
        try:
            upgrade("postgresql+psycopg", connection, folder=folder)
        finally:
            connection.rollback()
            connection.autocommit = True


def _revision(connection: Connection) -> str | None:
    if not _has_table(connection, VERSION_TABLE):
        return None
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return None if row is None else str(row[0])


def _has_table(connection: Connection, name: str) -> bool:
    found = connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
    return found is not None and found[0] is not None
