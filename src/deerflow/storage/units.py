"""Units of work that wait for a writer, and how those who asked for them learn what became of them."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

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
