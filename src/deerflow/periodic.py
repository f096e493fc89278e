"""Repeats work in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from deerflow.errors import DeerFlowError

logger = logging.getLogger(__name__)

_END_SECONDS = 2.0
"""How long the work may take to end; work blocked by an unreachable database is cancelled again."""


class Periodic:
    """Calls `work`, waits `seconds`, and so on; a failure is logged, and the next call follows."""

    def __init__(
        self, work: Callable[[], Awaitable[object]], seconds: float | Callable[[], float], *, name: str
    ) -> None:
        """Args: `seconds` may be a function, asked after each call. `name` says what the work does."""
        self._work = work
        self._seconds = seconds
        self._name = name
        self._is_woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> "Periodic":
        """Make the first call now, and go on until `aclose`."""
        self._task = asyncio.create_task(self.run(), name=self._name)
        return self

    def wake(self) -> None:
        """Make the next call without waiting."""
        self._is_woken.set()

    async def run(self) -> None:
        """Repeat the work until cancelled."""
        while True:
            self._is_woken.clear()
            try:
                await self._work()
            except DeerFlowError as error:
                logger.warning("%s failed, trying again: %s", self._name, error)
            except Exception:
                logger.exception("%s failed, trying again", self._name)
            seconds = self._seconds() if callable(self._seconds) else self._seconds
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_woken.wait(), seconds)

    async def aclose(self) -> None:
        """Cancel the work and wait for its end."""
        task, self._task = self._task, None
        for _ in range(2):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_END_SECONDS)
