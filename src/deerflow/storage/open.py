"""All stores of one database, and how to open the database that the settings select."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deerflow.config import DatabaseSettings, Paths, install_hint
from deerflow.errors import ConfigError
from deerflow.storage.assistants import AssistantStore
from deerflow.storage.checkpoint_saver import CheckpointSaver
from deerflow.storage.database import Engine
from deerflow.storage.effects import EffectLog
from deerflow.storage.events import EventLog
from deerflow.storage.items import ItemStore
from deerflow.storage.owners import LEASE_SECONDS
from deerflow.storage.passages import PassageStore
from deerflow.storage.retention import Retention
from deerflow.storage.runs import RunStore
from deerflow.storage.signals import Signals
from deerflow.storage.sqlite.engine import SqliteEngine
from deerflow.storage.threads import ThreadStore

if TYPE_CHECKING:  # its driver is an extra
    from deerflow.storage.postgres.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Storage:
    """All stores of one database."""

    threads: ThreadStore
    runs: RunStore
    events: EventLog
    effects: EffectLog
    assistants: AssistantStore
    checkpoints: CheckpointSaver
    store: ItemStore
    passages: PassageStore
    signals: Signals
    retention: Retention
    jobs: "Jobs | None"
    """None for SQLite, where every process polls for runs itself."""
    shorten_timeouts: Callable[[], None]
    """Shorten all waits for an unreachable database; called when the process exits."""


@asynccontextmanager
async def open_storage(
    settings: DatabaseSettings, paths: Paths, *, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[Storage]:
    """Open all stores of one database; leaving the block finishes every write.

    Args:
        lease_seconds: How long a run keeps its owner without a heartbeat.
    """
    engine, jobs = await _open_engine(settings, paths)
    try:
        yield Storage(
            threads=ThreadStore(engine),
            runs=RunStore(engine, lease_seconds=lease_seconds),
            events=EventLog(engine),
            effects=EffectLog(engine),
            assistants=AssistantStore(engine),
            checkpoints=CheckpointSaver(engine),
            store=ItemStore(engine),
            passages=PassageStore(engine),
            signals=engine.signals,
            retention=Retention(engine),
            jobs=jobs,
            shorten_timeouts=engine.shorten_timeouts,
        )
    finally:
        await engine.aclose()


def data_folder(settings: DatabaseSettings, paths: Paths) -> Path:
    """Return the folder of the database; a relative one is resolved against the parent of the home folder."""
    if settings.sqlite_dir is None:
        return paths.data
    return paths.home.parent / Path(settings.sqlite_dir).expanduser()


async def _open_engine(settings: DatabaseSettings, paths: Paths) -> tuple[Engine, "Jobs | None"]:
    match settings.backend:
        case "sqlite":
            return await SqliteEngine.open(data_folder(settings, paths) / paths.database.name), None
        case "memory":
            return await SqliteEngine.open_temporary(), None
        case "postgres":
            try:
                from deerflow.storage.postgres.engine import PostgresEngine  # noqa: PLC0415 - an extra
                from deerflow.storage.postgres.jobs import Jobs  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise ConfigError(
                    f"database.backend 'postgres' needs what is not installed here ({error.name}): "
                    f"{install_hint('psycopg')}"
                ) from error
            engine = await PostgresEngine.open(settings)
            return engine, Jobs(engine, engine.target.conninfo)
