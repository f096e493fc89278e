"""Helpers for alembic's revision scripts."""

from importlib import resources
from pathlib import Path

from alembic import context, op

from deerflow.storage.migrations import statements


def apply(revision: str) -> None:
    """Run the plain SQL of a revision for the current database."""
    folder, bind = Path(context.script.dir), op.get_bind()
    if bind.dialect.name == "sqlite":
        for statement in statements("sqlite", revision, folder).split(";"):
            if statement.strip():
                _run(statement)
        # Also counted in `user_version`: startup checks only this number.
        version = bind.exec_driver_sql("PRAGMA user_version").scalar_one()
        _run(f"PRAGMA user_version = {version + 1}")
    else:
        _run(statements("postgres", revision, folder))


def apply_procrastinate() -> None:
    """Create the tables of the job queue in PostgreSQL, unless they exist."""
    bind = op.get_bind()
    if bind.dialect.name == "sqlite":
        return
    if bind.exec_driver_sql("SELECT to_regclass('procrastinate_jobs')").scalar() is None:
        _run((resources.files("procrastinate.sql") / "schema.sql").read_text(encoding="utf-8"))


def _run(sql: str) -> None:
    # Use the driver without parameters: it takes colons and percent signs literally.
    driver = op.get_bind().connection.driver_connection
    assert driver is not None
    driver.execute(sql)
