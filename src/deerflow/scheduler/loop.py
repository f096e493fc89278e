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
from deerflow.scheduler.cron import Cron
from deerflow.scheduler.occurrences import occurrence_of
from deerflow.scheduler.store import CronStore

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]
StartRun = Callable[[Cron, datetime], Awaitable[RunRecord | None]]
CRON_ID = "cron_id"
"""Key in a run's metadata that holds its cron's id."""
_SHORTEST_SECONDS = 0.02
_LOOK_AGAIN_SECONDS = 0.2


def tick_key(cron: Cron, tick: datetime) -> str:
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
        self._news = asyncio.Event()
        self._plans: dict[str, _Plan] = {}

    def wake(self) -> None:
        """Poll again at once, after a cron was created or changed in this process."""
        self._news.set()

    async def run(self) -> None:
        """Start runs on time until cancelled."""
        while True:
            self._news.clear()
            try:
                await self.look()
                wait_seconds = self._seconds_to_next()
            except Exception:
                logger.exception("crons could not be looked at, trying again")
                wait_seconds = self._poll_seconds
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_seconds)

    async def look(self) -> list[RunRecord]:
        """Start the runs that are due now and return them."""
        now, ticks = self._clock(), await self._crons.ticks()
        crons = {cron.id: cron for cron in await self._crons.enabled()}
        self._plans = {cron.id: self._plan(cron, ticks.get(cron.id)) for cron in crons.values()}
        due = sorted(
            (plan.time, cron_id)
            for cron_id, plan in self._plans.items()
            if plan.time is not None and plan.time <= now
        )
        room = self._max_running - await self._running() if due else 0
        started = []
        for _, cron_id in due[: max(room, 0)]:
            cron = crons[cron_id]
            tick = cron.due(now, last=ticks.get(cron_id))
            if tick is None:
                continue
            run = await self._fire(cron, tick)
            self._plans[cron_id] = self._plan(cron, tick)
            if run is not None:
                started.append(run)
        return started

    def _plan(self, cron: Cron, last: datetime | None) -> "_Plan":
        """Return when a cron is next due; recomputed only if the cron or its last tick has changed."""
        known = self._plans.get(cron.id)
        if known is not None and (known.version, known.last) == (cron.updated_at, last):
            return known
        return _Plan(cron.updated_at, last, cron.next_after(last or cron.since))

    async def _fire(self, cron: Cron, tick: datetime) -> RunRecord | None:
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
            await self._crons.note(occurrence_of(cron, tick, run, problem, now=self._clock()))
        await self._crons.note_tick(cron.id, tick)
        return run

    async def _running(self) -> int:
        return sum(CRON_ID in run.request.metadata for run in await self._active())

    def _seconds_to_next(self) -> float:
        nearest = min((plan.time for plan in self._plans.values() if plan.time is not None), default=None)
        if nearest is None:
            return self._poll_seconds
        seconds = (nearest - self._clock()).total_seconds()
        if seconds <= 0:  # it became due meanwhile, or `max_running` is reached
            seconds = _LOOK_AGAIN_SECONDS
        return min(max(seconds, _SHORTEST_SECONDS), self._poll_seconds)


@dataclass(frozen=True, slots=True)
class _Plan:
    version: datetime
    last: datetime | None
    time: datetime | None
