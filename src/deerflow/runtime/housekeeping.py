"""Deletes expired events and old checkpoints, as the current settings say."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from deerflow.config import RunSettings
from deerflow.domain import RunRecord
from deerflow.errors import DeerFlowError
from deerflow.storage import Retention

logger = logging.getLogger(__name__)

_ROUND_SECONDS = 3600
_BATCH = 50
_PAUSE_SECONDS = 0.05
"""Between batches: writes of runs take precedence."""


class Housekeeping:
    """Deletes expired data every hour, and old checkpoints after each run."""

    def __init__(
        self,
        *,
        retention: Retention,
        settings: Callable[[], RunSettings],
        sweep: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Create the housekeeping of one process.

        Args:
            sweep: Also called in each round.
        """
        self._retention = retention
        self._settings = settings
        self._sweep = sweep
        self._rounds: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a round now, and then every hour."""
        self._rounds = asyncio.create_task(self._make_rounds())

    async def aclose(self) -> None:
        """Cancel the current round and stop."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)

    async def make_round(self, *, now: datetime | None = None) -> int:
        """Delete the events of runs that ended before the retention period; return how many runs."""
        days = self._settings().retention_days
        if days is None:
            return 0
        before = (now or datetime.now(UTC)) - timedelta(days=days)
        total = 0
        while dropped := await self._retention.drop_events(ended_before=before, limit=_BATCH):
            total += dropped
            await asyncio.sleep(_PAUSE_SECONDS)
        if total:
            logger.info(
                "events of %s runs were deleted: they ended more than %s days ago", total, f"{days:g}"
            )
        return total

    async def tidy_after(self, run: RunRecord) -> None:
        """Delete the oldest checkpoints of the run's thread if it has more than the settings allow."""
        keep = self._settings().checkpoints_kept
        if keep is not None:
            await self._retention.drop_checkpoints(run.thread_id, keep=keep)

    async def _make_rounds(self) -> None:
        while True:
            try:
                await self.make_round()
                if self._sweep is not None:
                    await self._sweep()
            except DeerFlowError as error:
                logger.warning("not all that is old could be deleted, trying again in an hour: %s", error)
            await asyncio.sleep(_ROUND_SECONDS)
