"""Open the database that the settings select."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deerflow.config import DatabaseSettings, Paths, install_hint
from deerflow.errors import ConfigError
from deerflow.storage.base import Jobs, Storage
from deerflow.storage.database import Engine
from deerflow.storage.owners import LEASE_SECONDS
from deerflow.storage.sql.assistants import SqlAssistantStore
from deerflow.storage.sql.effects import SqlEffectLog
from deerflow.storage.sql.events import SqlEventLog
from deerflow.storage.sql.retention import SqlRetention
from deerflow.storage.sql.runs import SqlRunStore
from deerflow.storage.sql.saver import SqlSaver
from deerflow.storage.sql.store import SqlStore
from deerflow.storage.sql.threads import SqlThreadStore
from deerflow.storage.sqlite.engine import SqliteEngine


@asynccontextmanager
async def open_storage(
    settings: DatabaseSettings, paths: Paths, *, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[Storage]:
    """Open all stores of one database; leaving the block finishes every write.

    Args:
        lease_seconds: How long a run keeps its owner without a heartbeat.
    """
    engine = await _open_engine(settings, paths)
    checkpoints = SqlSaver(engine)
    try:
        yield Storage(
            threads=SqlThreadStore(engine),
            runs=SqlRunStore(engine, lease_seconds=lease_seconds),
            events=SqlEventLog(engine),
            effects=SqlEffectLog(engine),
            assistants=SqlAssistantStore(engine),
            checkpoints=checkpoints,
            store=SqlStore(engine),
            signals=engine.signals,
            retention=SqlRetention(engine, checkpoints.serde),
            jobs=_jobs_of(engine),
            shorten_timeouts=engine.shorten_timeouts,
        )
    finally:
        await engine.aclose()


def data_folder(settings: DatabaseSettings, paths: Paths) -> Path:
    """Return the folder of the database; a relative one is resolved against the parent of the home folder."""
    if settings.sqlite_dir is None:
        return paths.data
    return paths.home.parent / Path(settings.sqlite_dir).expanduser()


async def _open_engine(settings: DatabaseSettings, paths: Paths) -> Engine:
    match settings.backend:
        case "sqlite":
            return await SqliteEngine.open(data_folder(settings, paths) / paths.database.name)
        case "memory":
            return await SqliteEngine.open_temporary()
        case "postgres":
            opened: Engine = await _postgres("engine").PostgresEngine.open(settings)
            return opened


def _jobs_of(engine: Any) -> Jobs | None:
    if isinstance(engine, SqliteEngine):
        return None  # every process that opened the file polls for runs itself
    jobs: Jobs = _postgres("jobs").PostgresJobs(engine, engine.target.conninfo)
    return jobs


def _postgres(module: str) -> Any:
    try:
        return importlib.import_module(f"deerflow.storage.postgres.{module}")
    except ImportError as error:
        raise ConfigError(
            f"database.backend 'postgres' needs what is not installed here ({error.name}): "
            f"{install_hint('psycopg')}"
        ) from error
