"""Walks a database to the newest revision, with alembic; loaded only when there is something to do."""

from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from deerflow.storage.migrations import FOLDER, NEWEST, VERSION_TABLE


def upgrade(dialect: str, connection: Any) -> None:
    """Bring the database behind a connection of its driver to the newest revision, in one transaction.

    Args:
        dialect: SQLAlchemy's name of database and driver, such as `postgresql+psycopg`.
    """
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    engine = create_engine(f"{dialect}://", creator=lambda: connection, poolclass=StaticPool)
    with (
        EnvironmentContext(
            config, scripts, fn=lambda revision, _: scripts._upgrade_revs(NEWEST, revision)
        ) as environment,
        engine.connect() as bound,
    ):
        environment.configure(connection=bound, version_table=VERSION_TABLE)
        with bound.begin():
            environment.run_migrations()
