"""What revisions are made of; for alembic's scripts."""

from importlib import resources

from alembic import op

from deerflow.storage.migrations import statements


def apply(revision: str) -> None:
    """Run the plain SQL of a revision for the database at hand."""
    name = op.get_bind().dialect.name
    if name == "sqlite":
        for statement in statements("sqlite", revision).split(";"):
            if statement.strip():
                _run(statement)
    else:
        _run(statements("postgres", revision))


def apply_procrastinate() -> None:
    """Make the tables of the job queue, unless they are there."""
    if op.get_bind().exec_driver_sql("SELECT to_regclass('procrastinate_jobs')").scalar() is None:
        _run((resources.files("procrastinate.sql") / "schema.sql").read_text(encoding="utf-8"))


def _run(sql: str) -> None:
    # The driver itself, without values: the text is taken as it is, with its colons and percent signs.
    driver = op.get_bind().connection.driver_connection
    assert driver is not None
    driver.execute(sql)
