"""Measure the delay of the event loop: whatever blocks it delays every run and every reader."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from deerflow.observability.meters import LOOP_DELAY, Meters

logger = logging.getLogger(__name__)

EVERY_SECONDS = 0.1
WARNED_SECONDS = 1.0
"""Delays from this on are logged: users notice them."""


@contextmanager
def measuring_loop_delay(meters: Meters) -> Iterator[None]:
    """Measure the running loop's delay ten times a second, for the length of a block."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.TimerHandle

    def tick(due: float) -> None:
        nonlocal waiting
        delay = max(0.0, loop.time() - due)
        meters.observe(LOOP_DELAY, delay)
        if delay >= WARNED_SECONDS:
            logger.warning("event loop was %.1f s late: something held it, or the machine is busy", delay)
        waiting = loop.call_later(EVERY_SECONDS, tick, loop.time() + EVERY_SECONDS)

    waiting = loop.call_later(EVERY_SECONDS, tick, loop.time() + EVERY_SECONDS)
    try:
        yield
    finally:
        waiting.cancel()
