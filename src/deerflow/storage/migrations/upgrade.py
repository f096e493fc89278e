"""Upgrade a database to the newest revision with alembic; imported only when an upgrade is needed."""

from pathlib import Path
from typing import Any

from alembic import command, context, op
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from deerflow.storage.migrations import FOLDER, statements


def upgrade(dialect: str, connection: Any, *, folder: Path = FOLDER) -> None:
    """Upgrade the database of a driver connection to the newest revision, in one transaction.

    Args:
        dialect: SQLAlchemy's name of database and driver, such as `postgresql+psycopg`.
        folder: Location of the revisions.
    """
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"{dialect}://", creator=lambda: connection, poolclass=StaticPool)
    with engine.connect() as bound, bound.begin():
        if dialect == "sqlite":
            # The driver does not begin transactions here; from now on other processes wait.
            bound.exec_driver_sql("BEGIN IMMEDIATE")
        config.attributes["connection"] = bound
        command.upgrade(config, "head")


def apply(revision: str) -> None:
    """Run the plain SQL of a revision; for alembic's revision scripts."""
    folder, bind = Path(context.script.dir), op.get_bind()
    # Use the driver without parameters: it takes colons and percent signs literally.
    driver = bind.connection.driver_connection
    assert driver is not None
    if bind.dialect.name != "sqlite":
        driver.execute(statements("postgres", revision, folder))
        return
    for statement in statements("sqlite", revision, folder).split(";"):
        if statement.strip():
            driver.execute(statement)
