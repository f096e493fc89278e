"""Units of work that wait for a writer, and how those who asked for them learn what became of them."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from deerflow.errors import StorageError

GROUP = 500
"""How many units one transaction holds at most."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Unit:
    """One piece of work and the one who waits for it."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop | None
    """The loop that the future belongs to; None for a future of threads."""
    future: "asyncio.Future[Any] | Future[Any]"
    result: Any = None
    error: Exception | None = None
    asked_at: float = 0.0
    """When it was asked for, where somebody counts how long it waits."""


class UnitQueue(ABC):
    """Units on their way to the one thread that writes; their order is the order of the database."""

    def __init__(self, name: str) -> None:
        """Start the thread; a subclass is complete by then.

        Args:
            name: The database, for the error of a late unit.
        """
        self._name = name
        self._queue: deque[Unit] = deque()
        self._gate = threading.Lock()
        self._has_work = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="deerflow-writer", daemon=True)
        self._thread.start()

    @abstractmethod
    def _write(self, units: list[Unit]) -> None:
        """Commit these units and tell those who wait for them."""

    def put(self, unit: Unit, *, wakes: bool = True) -> None:
        """Queue a unit.

        Args:
            wakes: Let the thread begin at once; else the unit goes with the next one that does, or
                with `wake`. Waking it makes the caller share the interpreter at the worst moment.
        """
        with self._gate:
            if self._is_closed:
                raise StorageError(f"the database {self._name} is closed")
            self._queue.append(unit)
        if wakes:
            self._has_work.set()

    def wake(self) -> None:
        """Begin with what waits, if anything does."""
        if self._queue:
            self._has_work.set()

    def close(self) -> None:
        """Finish everything that was queued and end the thread."""
        with self._gate:
            self._is_closed = True
        self._has_work.set()
        self._thread.join()

    def _run(self) -> None:
        while not (self._is_closed and not self._queue):
            self._has_work.wait()
            self._has_work.clear()
            while units := self._next():
                self._write(units)

    def _next(self) -> list[Unit]:
        return [self._queue.popleft() for _ in range(min(len(self._queue), GROUP))]


def deliver(units: Iterable[Unit]) -> None:
    """Wake those who wait, with one call per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Unit]] = {}
    for unit in units:
        if unit.loop is None:
            _settle([unit])
        else:
            loops.setdefault(unit.loop, []).append(unit)
    for loop, waiting in loops.items():
        try:
            loop.call_soon_threadsafe(_settle, waiting)
        except RuntimeError:
            logger.debug("loop %r was closed before its writes were done", loop)


def _settle(units: Iterable[Unit]) -> None:
    for unit in units:
        if unit.future.done():  # the one who waited was cancelled; the work is done all the same
            continue
        if unit.error is not None:
            unit.future.set_exception(unit.error)
        else:
            unit.future.set_result(unit.result)
