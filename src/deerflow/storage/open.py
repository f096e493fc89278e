"""Opens the database that the settings name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deerflow.config import DatabaseSettings, Paths
from deerflow.errors import ConfigError
from deerflow.storage.base import Storage
from deerflow.storage.sqlite.assistants import SqliteAssistantStore
from deerflow.storage.sqlite.effects import SqliteEffectLog
from deerflow.storage.sqlite.engine import Engine
from deerflow.storage.sqlite.events import SqliteEventLog
from deerflow.storage.sqlite.runs import SqliteRunStore
from deerflow.storage.sqlite.saver import SqliteSaver
from deerflow.storage.sqlite.store import SqliteStore
from deerflow.storage.sqlite.threads import SqliteThreadStore


@asynccontextmanager
async def open_storage(settings: DatabaseSettings, paths: Paths) -> AsyncIterator[Storage]:
    """Open all stores of one database; leaving the block finishes every write."""
    engine = await _open_engine(settings, paths)
    try:
        yield Storage(
            threads=SqliteThreadStore(engine),
            runs=SqliteRunStore(engine),
            events=SqliteEventLog(engine),
            effects=SqliteEffectLog(engine),
            assistants=SqliteAssistantStore(engine),
            checkpoints=SqliteSaver(engine),
            store=SqliteStore(engine),
        )
    finally:
        await engine.aclose()


def data_folder(settings: DatabaseSettings, paths: Paths) -> Path:
    """Return the folder of the database; a relative one starts where the home stands."""
    if settings.sqlite_dir is None:
        return paths.data
    return paths.home.parent / Path(settings.sqlite_dir).expanduser()


async def _open_engine(settings: DatabaseSettings, paths: Paths) -> Engine:
    match settings.backend:
        case "sqlite":
            return await Engine.open(data_folder(settings, paths) / paths.database.name)
        case "memory":
            return await Engine.open_temporary()
        case "postgres":
            raise ConfigError(
                "database.backend 'postgres' arrives with the postgres extra in a later version: "
                "set it to 'sqlite' (one machine, kept) or 'memory' (gone at the end) meanwhile"
            )
