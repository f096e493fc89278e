"""Queue of writes for the writer thread, and delivery of their results to the callers."""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from deerflow.errors import StorageError

MOMENT_SECONDS = 0.002
"""How long a write with `may_wait` is delayed to be committed with others."""
GROUP = 500
"""Maximum number of writes per transaction."""
NEAR_UNITS = 8
NEAR_BYTES = 32 * 1024
"""Limits up to which the calling thread writes itself, without the writer thread."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Unit:
    """One write and the future of its caller."""

    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop | None
    """The loop of an asyncio future; None for a `concurrent.futures` future."""
    future: "asyncio.Future[Any] | Future[Any]"
    result: Any = None
    error: Exception | None = None
    asked_at: float = 0.0
    """Monotonic time at which it was queued."""
    weight: int | None = None
    """Approximate number of bytes written; None when unknown."""
    is_told: bool = False
    """The result is being delivered to the caller."""


class UnitQueue(ABC):
    """Writes queued for the one writer thread; they reach the database in queue order."""

    def __init__(self, name: str) -> None:
        """Start the thread; a subclass must be fully initialized before.

        Args:
            name: The database, for the error of a write after closing.
        """
        self._name = name
        self._queue: deque[Unit] = deque()
        self._gate = threading.Lock()
        self._writing = threading.Lock()
        """Held from taking units until they are written, which keeps their order."""
        self._has_work = threading.Event()
        self._is_closed = False
        self._waking: asyncio.AbstractEventLoop | None = None
        """The loop whose timer will wake the thread."""
        self._thread = threading.Thread(target=self._run, name="deerflow-writer", daemon=True)
        self._thread.start()

    @abstractmethod
    def _write(self, units: list[Unit]) -> None:
        """Commit these units and deliver their results."""

    def _write_near(self, units: list[Unit]) -> bool:
        """Write on the calling thread if that is fast; otherwise do nothing and return False."""
        return False

    def ask(
        self, work: Callable[[Any], Any], *, may_wait: bool = False, weight: int | None = None
    ) -> "asyncio.Future[Any]":
        """Queue a write from the running loop and return its future.

        Args:
            may_wait: Let the thread begin a moment later. Waking it at once makes the caller compete for the
                GIL, and writes that arrive meanwhile are committed together.
            weight: Approximate number of bytes written; a small write may not need the thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(Unit(work, loop, future, asked_at=time.monotonic(), weight=weight))
        if not may_wait:
            if weight is None or not self._has_written_near():
                self._has_work.set()
        elif self._waking is not loop:  # one timer serves all delayed writes
            self._waking = loop
            loop.call_later(MOMENT_SECONDS, self._wake)
        return future

    def ask_blocking(self, work: Callable[[Any], Any]) -> "Future[Any]":
        """Queue a write from a thread without an event loop."""
        future: Future[Any] = Future()
        self._put(Unit(work, None, future, asked_at=time.monotonic()))
        self._has_work.set()
        return future

    def _put(self, unit: Unit) -> None:
        with self._gate:
            if self._is_closed:
                raise StorageError(f"the database {self._name} is closed")
            self._queue.append(unit)

    def _has_written_near(self) -> bool:
        """Write the queue on the calling thread: two thread switches cost more than a small commit."""
        if len(self._queue) > NEAR_UNITS or not self._writing.acquire(blocking=False):
            return False
        try:
            units = self._next()
            if _are_light(units) and self._survived(self._write_near, units):
                return True
            self._queue.extendleft(reversed(units))
            return False
        finally:
            self._writing.release()

    def _wake(self) -> None:
        self._waking = None
        if self._queue:
            self._has_work.set()

    def close(self) -> None:
        """Finish all queued writes and end the thread."""
        with self._gate:
            self._is_closed = True
        self._has_work.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_finished():
            self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                with self._writing:
                    if units := self._next():
                        self._survived(self._write, units)

    def _survived(self, write: Callable[[list[Unit]], object], units: list[Unit]) -> bool:
        """Call `write` and fail the units on any exception: without the writer thread all callers would hang.

        Return False when `write` reports that it did nothing.
        """
        try:
            return write(units) is not False
        except Exception as error:
            logger.exception("database %s: a write failed unexpectedly", self._name)
            waiting = [unit for unit in units if not unit.is_told]
            for unit in waiting:
                unit.error = StorageError(f"the database {self._name} failed unexpectedly: {error}")
            deliver(waiting)
            return True

    def _is_finished(self) -> bool:
        with self._writing:  # `_has_written_near` may still put units back
            return self._is_closed and not self._queue

    def _next(self) -> list[Unit]:
        return [self._queue.popleft() for _ in range(min(len(self._queue), GROUP))]


def _are_light(units: Iterable[Unit]) -> bool:
    weights = [unit.weight for unit in units]
    return None not in weights and sum(weight or 0 for weight in weights) <= NEAR_BYTES


def deliver(units: Iterable[Unit], *, here: asyncio.AbstractEventLoop | None = None) -> None:
    """Deliver results to the callers, with one call per event loop.

    Args:
        here: The loop that runs on this thread, if any.
    """
    loops: dict[asyncio.AbstractEventLoop, list[Unit]] = {}
    for unit in units:
        unit.is_told = True
        if unit.loop is None or unit.loop is here:
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
        if unit.future.done():  # the caller was cancelled; the work is done anyway
            continue
        if unit.error is not None:
            unit.future.set_exception(unit.error)
        else:
            unit.future.set_result(unit.result)
