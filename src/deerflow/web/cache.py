"""Shares the results of slow calls among the agents of a run: concurrent callers wait for one call."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")

MAX_ENTRIES = 500


class SharedCalls:
    """Results by key, each kept for a limited time; a failed call is not kept."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: dict[Hashable, tuple[asyncio.Task[Any], float]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]], *, seconds: float) -> T:
        """Return the result for `key`; call `make` unless it is known or under way.

        Cancelling one caller does not cancel the call, since others may wait for it.
        """
        known = self._tasks.get(key)
        if known is None or (known[0].done() and self._clock() >= known[1]):
            self._discard_oldest()
            task = asyncio.create_task(_awaited(make))
            task.add_done_callback(lambda done: self._settle(done, seconds))
            self._tasks[key] = (task, 0.0)
        else:
            task = known[0]
        return cast("T", await asyncio.shield(task))

    def share(self, key: Hashable, other: Hashable) -> None:
        """Let the result for `key`, known or under way, be the result for `other` too."""
        self._tasks[other] = self._tasks[key]

    async def aclose(self) -> None:
        """Cancel the calls that are under way."""
        tasks = [task for task, _ in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _settle(self, task: asyncio.Task[Any], seconds: float) -> None:
        has_failed = task.cancelled() or task.exception() is not None
        for key in [key for key, (known, _) in self._tasks.items() if known is task]:
            if has_failed:
                del self._tasks[key]
            else:
                self._tasks[key] = (task, self._clock() + seconds)

    def _discard_oldest(self) -> None:
        if len(self._tasks) >= MAX_ENTRIES:
            oldest = next((key for key, (task, _) in self._tasks.items() if task.done()), None)
            self._tasks.pop(oldest, None)


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
