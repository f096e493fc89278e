"""Keeps the tasks of one caller together at their end: whoever asked for many goes on when all have ended.

What the lead agent does with one result costs more than taking up the answer of another task. When many
answers come in at once, that work can wait a moment until all of them are heard and told.
"""

from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from deerflow.context import Told
from deerflow.subagents.moments import Moments

MOMENT_SECONDS = 0.06


class Company:
    """The tasks that callers wait for."""

    def __init__(self) -> None:
        self._at_work: Counter[Hashable] = Counter()
        self._ends = Moments()

    @asynccontextmanager
    async def of(self, caller: Hashable, *, told: Told) -> AsyncIterator[None]:
        """Be a task of a caller for the length of a block; then wait a moment for its other tasks.

        Args:
            told: Waits until readers know of the end; the last one does so before all go on.
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
