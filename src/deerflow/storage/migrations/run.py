"""Walks a database to the newest revision, with alembic; loaded only when there is something to do."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from deerflow.storage.migrations import FOLDER


def upgrade(dialect: str, connection: Any, *, folder: Path = FOLDER) -> None:
    """Bring the database behind a connection of its driver to the newest revision, in one transaction.

    Args:
        dialect: SQLAlchemy's name of database and driver, such as `postgresql+psycopg`.
        folder: Where the revisions are.
    """
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"{dialect}://", creator=lambda: connection, poolclass=StaticPool)
    with engine.connect() as bound, bound.begin():
        if dialect == "sqlite":
            # Its driver does not begin by itself here; from now on other processes wait.
            bound.exec_driver_sql("BEGIN IMMEDIATE")
        config.attributes["connection"] = bound
        command.upgrade(config, "head")
