"""Job queue that dispatches runs to the processes that share a database, with procrastinate.

A job only wakes a worker. The run's row is the source of truth: a duplicate, late or lost job changes
only the time at which the run is claimed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import psycopg
import psycopg_pool
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ProcrastinateException

from deerflow.errors import DeerFlowError
from deerflow.storage.database import Database, Engine
from deerflow.storage.postgres.database import JOB_QUEUE, JOB_TASK

logger = logging.getLogger(__name__)

Take = Callable[[str], Awaitable[None]]

_POLL_SECONDS = 2.0
"""Polling interval for jobs; a notification usually comes first."""
_RETRY_SECONDS = 2.0
_CLEANUP_SECONDS = 30.0
_HEARTBEAT_SECONDS = 10.0
_STALLED_SECONDS = 60.0
"""A job worker without a heartbeat for this long counts as dead."""
_ABORT_POLL_SECONDS = 3600.0
"""Jobs are never aborted: cancel requests go to the owner of a run."""


class Jobs:
    """Fetches jobs for this process, and deletes the jobs that dead processes left."""

    def __init__(self, engine: Engine, conninfo: str) -> None:
        self._engine = engine
        self._conninfo = conninfo
        # Every job would log two lines, and runs log their own.
        logging.getLogger("procrastinate").setLevel(logging.WARNING)
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

    async def follow(self, take: Take, *, concurrency: int) -> None:
        """Call `take` with the id of each run that waits for an owner, up to `concurrency` at a time.

        A call lasts as long as the run occupies this process. Usually each run is dispatched to one process;
        `RunStore.orphans` covers runs that are dispatched twice or not at all. Returns only when cancelled.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fetch_always(take, concurrency))
            tasks.create_task(self._clean_up_always())

    async def workers(self) -> int:
        """Return how many processes currently fetch jobs."""
        since = _ago(3 * _HEARTBEAT_SECONDS)
        sql = f"SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat >= {since}"
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

        @app.task(name=JOB_TASK)
        async def run(run_id: str) -> None:
            try:
                await take(run_id)
            except asyncio.CancelledError:
                # A job that returns normally is deleted; the run's state is in its row.
                return
            except DeerFlowError as error:
                logger.warning("run %s could not be claimed, the next poll does it: %s", run_id, error)

        async with app.open_async():
            await app.run_worker_async(
                queues=[JOB_QUEUE],
                concurrency=concurrency,
                fetch_job_polling_interval=_POLL_SECONDS,
                abort_job_polling_interval=_ABORT_POLL_SECONDS,
                # Jobs end at once on shutdown: a run does not live in its job.
                shutdown_graceful_timeout=0,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=_HEARTBEAT_SECONDS,
                stalled_worker_timeout=_STALLED_SECONDS,
            )

    async def _clean_up_always(self) -> None:
        while True:
            try:
                await self._engine.write(_clean_up)
            except DeerFlowError as error:
                logger.warning("jobs of dead processes could not be deleted, trying again: %s", error)
            await asyncio.sleep(_CLEANUP_SECONDS)


def _clean_up(db: Database) -> None:
    """Delete jobs that are done or whose process died: their runs are found by their rows."""
    db.execute(
        "DELETE FROM procrastinate_jobs WHERE queue_name = ? AND (status NOT IN ('todo', 'doing') "
        "OR status = 'doing' AND (worker_id IS NULL OR worker_id IN "
        f"(SELECT id FROM procrastinate_workers WHERE last_heartbeat < {_ago(_STALLED_SECONDS)})))",
        (JOB_QUEUE,),
    )
    db.execute("SELECT procrastinate_prune_stalled_workers_v1(?)", (_STALLED_SECONDS,))


def _ago(seconds: float) -> str:
    return f"now() - interval '{seconds:g} seconds'"
