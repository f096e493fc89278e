"""Measures the longest time for which something held the event loop."""

import asyncio
import gc
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

TICK_SECONDS = 0.005
HELD_SECONDS = 0.5
"""What a test allows: ten times our promise of 50 ms, since a busy machine lets the loop wait while another
thread of ours works. What holds the loop for good takes seconds."""


class LoopWatch:
    """Fails the block that it surrounds when the loop was held for longer than `seconds`.

    Counted is processor time of this process between two turns of the loop: a machine that is busy with
    something else delays the loop, but nobody here holds it.
    """

    def __init__(
        self, seconds: float = HELD_SECONDS, *, clock: Callable[[], float] = time.process_time
    ) -> None:
        """Args: `clock`, `time.thread_time` where a test server works in another thread of this process."""
        self.longest = 0.0
        self._seconds = seconds
        self._clock = clock

    async def __aenter__(self) -> Self:
        gc.disable()  # a look through all objects of a whole test run takes most of a second
        self._wall, self._processor = time.monotonic(), self._clock()
        self._next = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)
        self._next.cancel()
        self._measure()
        gc.enable()
        if kind is None:
            assert self.longest < self._seconds, f"the event loop was held for {self.longest:.2f} s"

    def _tick(self) -> None:
        self._measure()
        self._next = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _measure(self) -> None:
        wall, processor = time.monotonic(), self._clock()
        held = min(wall - self._wall, processor - self._processor)
        self.longest = max(self.longest, held)
        self._wall, self._processor = wall, processor
