"""Delay the end of a caller's tasks briefly, so that tasks ending at almost the same time return together.

What the lead agent does with a result costs more event loop time than processing another task's model
answer. When many answers arrive at once, that work waits until all of them are processed and published.
"""

from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from deerflow.context import Told
from deerflow.subagents.moments import Moments

MOMENT_SECONDS = 0.06


class Company:
    """Running tasks, grouped by the caller that waits for them."""

    def __init__(self) -> None:
        self._at_work: Counter[Hashable] = Counter()
        self._ends = Moments()

    @asynccontextmanager
    async def of(self, caller: Hashable, *, told: Told) -> AsyncIterator[None]:
        """Count a task of a caller for the length of a block, then wait briefly for its other tasks.

        Args:
            told: Flushes the events to readers; the last task calls it before all of them return.
        """
        self._at_work[caller] += 1
        try:
            yield
            if self._at_work[caller] == 1 and self._ends.is_awaited(caller):
                await told()
        finally:
            self._at_work[caller] -= 1
            if self._at_work[caller] == 0:
                del self._at_work[caller]
                self._ends.happened(caller)
        if caller in self._at_work:
            await self._ends.wait(caller, seconds=MOMENT_SECONDS)
