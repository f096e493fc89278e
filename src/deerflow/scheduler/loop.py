"""Polls the crons and starts the runs that are due.

Any number of servers may poll one database: all of them derive the same idempotency key for a tick, so only
one run is created. Ticks missed while no server was up are made up for by one run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from deerflow.domain import RunRecord
from deerflow.errors import DeerFlowError, ThreadBusyError
from deerflow.scheduler.cron import CronJob, occurrence_of
from deerflow.scheduler.store import CronStore

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]
StartRun = Callable[[CronJob, datetime], Awaitable[RunRecord | None]]
CRON_ID = "cron_id"
"""Key in a run's metadata that holds its cron's id."""
_MIN_WAIT_SECONDS = 0.02
_BUSY_POLL_SECONDS = 0.2


def tick_key(cron: CronJob, tick: datetime) -> str:
    """Return the idempotency key of the run for one tick."""
    return f"cron:{cron.id}:{tick.isoformat()}"


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Scheduler:
    """Starts the runs of all crons."""

    def __init__(
        self,
        *,
        crons: CronStore,
        start: StartRun,
        active: Callable[[], Awaitable[list[RunRecord]]],
        poll_seconds: float,
        max_running: int,
        clock: Clock = utc_now,
    ) -> None:
        """Create the scheduler of one server.

        Args:
            start: Starts the run of a cron for a tick; returns None if the cron's thread no longer exists.
            active: Returns the runs in flight.
            poll_seconds: Upper bound on noticing a cron that another server changed.
            max_running: How many cron runs may be in flight at once.
        """
        self._crons = crons
        self._start = start
        self._active = active
        self._poll_seconds = poll_seconds
        self._max_running = max_running
        self._clock = clock
        self._wake_up = asyncio.Event()
        self._next_ticks: dict[str, _NextTick] = {}

    def wake(self) -> None:
        """Poll again at once, after a cron was created or changed in this process."""
        self._wake_up.set()

    async def run(self) -> None:
        """Start runs on time until cancelled."""
        while True:
            self._wake_up.clear()
            try:
                await self.poll()
                wait_seconds = self._seconds_to_next()
            except Exception:
                logger.exception("crons could not be polled, trying again")
                wait_seconds = self._poll_seconds
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake_up.wait(), wait_seconds)

    async def poll(self) -> list[RunRecord]:
        """Start the runs that are due now and return them."""
        now, ticks = self._clock(), await self._crons.ticks()
        crons = {cron.id: cron for cron in await self._crons.enabled()}
        self._next_ticks = {cron.id: self._next_tick(cron, ticks.get(cron.id)) for cron in crons.values()}
        due = sorted(
            (next_tick.time, cron_id)
            for cron_id, next_tick in self._next_ticks.items()
            if next_tick.time is not None and next_tick.time <= now
        )
        free = self._max_running - await self._running() if due else 0
        started = []
        for _, cron_id in due[: max(free, 0)]:
            cron = crons[cron_id]
            tick = cron.due(now, last=ticks.get(cron_id))
            if tick is None:
                continue
            run = await self._start_run(cron, tick)
            self._next_ticks[cron_id] = self._next_tick(cron, tick)
            if run is not None:
                started.append(run)
        return started

    def _next_tick(self, cron: CronJob, last: datetime | None) -> "_NextTick":
        """Return when a cron is next due; recomputed only if the cron or its last tick has changed."""
        known = self._next_ticks.get(cron.id)
        if known is not None and (known.version, known.last) == (cron.updated_at, last):
            return known
        return _NextTick(cron.updated_at, last, cron.next_after(last or cron.since))

    async def _start_run(self, cron: CronJob, tick: datetime) -> RunRecord | None:
        run: RunRecord | None = None
        problem: DeerFlowError | None = None
        try:
            run = await self._start(cron, tick)
            if run is None:
                logger.info("cron %s is deleted: its thread %s is gone", cron.id, cron.thread_id)
                await self._crons.delete(cron.id)
                return None
        except ThreadBusyError as error:
            logger.info("cron %s skips %s: its thread is busy", cron.id, tick)
            problem = error
        except DeerFlowError as error:
            logger.warning("cron %s could not start a run for %s: %s", cron.id, tick, error)
            problem = error
        if cron.title is not None:
            await self._crons.add_occurrence(occurrence_of(cron, tick, run, problem, now=self._clock()))
        await self._crons.set_last_tick(cron.id, tick)
        return run

    async def _running(self) -> int:
        return sum(CRON_ID in run.request.metadata for run in await self._active())

    def _seconds_to_next(self) -> float:
        nearest = min(
            (next_tick.time for next_tick in self._next_ticks.values() if next_tick.time is not None),
            default=None,
        )
        if nearest is None:
            return self._poll_seconds
        seconds = (nearest - self._clock()).total_seconds()
        if seconds <= 0:  # it became due meanwhile, or `max_running` is reached
            seconds = _BUSY_POLL_SECONDS
        return min(max(seconds, _MIN_WAIT_SECONDS), self._poll_seconds)


@dataclass(frozen=True, slots=True)
class _NextTick:
    version: datetime
    last: datetime | None
    time: datetime | None
