"""Hears of runs that wait, by the jobs of procrastinate.

A job only wakes somebody up. The row of its run is the truth: a job that comes twice, late or never
changes nothing but the moment at which the run is taken up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import psycopg
import psycopg_pool
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ProcrastinateException
from typing_extensions import override

from deerflow.errors import DeerFlowError
from deerflow.storage.base import Jobs
from deerflow.storage.database import Database, Engine
from deerflow.storage.postgres.dispatch import QUEUE_NAME, TASK_NAME

logger = logging.getLogger(__name__)

Take = Callable[[str], Awaitable[None]]

_POLL_SECONDS = 2.0
"""The time between two looks for jobs; a notification mostly comes first."""
_RETRY_SECONDS = 2.0
_TIDY_SECONDS = 30.0
_BEAT_SECONDS = 10.0
_STALLED_SECONDS = 60.0
"""After so much silence a process that fetches jobs counts as dead."""
_ABORT_POLL_SECONDS = 3600.0
"""Nobody aborts jobs: wishes to stop go to the owner of a run."""


class PostgresJobs(Jobs):
    """Fetches jobs for this process, and clears away what dead processes left of them."""

    def __init__(self, engine: Engine, conninfo: str) -> None:
        self._engine = engine
        self._conninfo = conninfo
        # Every job would be two lines in the log, and runs have lines of their own.
        logging.getLogger("procrastinate").setLevel(logging.WARNING)
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

    @override
    async def follow(self, take: Take, *, concurrency: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetch_always(take, concurrency))
            tasks.create_task(self._tidy_always())

    @override
    async def workers(self) -> int:
        sql = f"SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat >= {_ago(3 * _BEAT_SECONDS)}"
        found = await self._engine.read(lambda db: db.execute(sql).fetchone())
        return int(found[0])

    async def _fetch_always(self, take: Take, concurrency: int) -> None:
        while True:
            try:
                await self._fetch(take, concurrency)
            except (ProcrastinateException, psycopg.Error, psycopg_pool.PoolTimeout) as error:
                logger.warning("jobs could not be fetched, trying again: %s", error)
            # A listener that lost its connection ends without an error.
            await asyncio.sleep(_RETRY_SECONDS)

    async def _fetch(self, take: Take, concurrency: int) -> None:
        """Fetch jobs until cancelled, or until the connection is lost."""
        connector = PsycopgConnector(conninfo=self._conninfo, min_size=2, max_size=4, timeout=10)
        app = App(connector=connector)
        app.task(name=TASK_NAME)(_Job(take).run)
        async with app.open_async():
            await app.run_worker_async(
                queues=[QUEUE_NAME],
                concurrency=concurrency,
                fetch_job_polling_interval=_POLL_SECONDS,
                abort_job_polling_interval=_ABORT_POLL_SECONDS,
                # Runs do not live in jobs: those end at once, whatever their runs are at.
                shutdown_graceful_timeout=0,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=_BEAT_SECONDS,
                stalled_worker_timeout=_STALLED_SECONDS,
            )

    async def _tidy_always(self) -> None:
        while True:
            try:
                await self._engine.write(_tidy)
            except DeerFlowError as error:
                logger.warning("jobs of dead processes could not be cleared away, trying again: %s", error)
            await asyncio.sleep(_TIDY_SECONDS)


class _Job:
    """What a job does: have its run taken up."""

    def __init__(self, take: Take) -> None:
        self._take = take

    async def run(self, run_id: str) -> None:
        try:
            await self._take(run_id)
        except asyncio.CancelledError:
            # A job that ends in order is cleared away; what comes of the run is said in its row.
            return
        except DeerFlowError as error:
            logger.warning("run %s could not be taken up, the next look does it: %s", run_id, error)


def _tidy(db: Database) -> None:
    """Delete jobs that are done, or whose process died: their runs are found by their rows."""
    db.execute(
        "DELETE FROM procrastinate_jobs WHERE queue_name = ? AND (status NOT IN ('todo', 'doing') "
        "OR status = 'doing' AND (worker_id IS NULL OR worker_id IN "
        f"(SELECT id FROM procrastinate_workers WHERE last_heartbeat < {_ago(_STALLED_SECONDS)})))",
        (QUEUE_NAME,),
    )
    db.execute("SELECT procrastinate_prune_stalled_workers_v1(?)", (_STALLED_SECONDS,))


def _ago(seconds: float) -> str:
    return f"now() - interval '{seconds:g} seconds'"
