"""Work that is done to its end, whatever happens to whoever waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish `work` even when this task is cancelled meanwhile; the cancellation goes on afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)  # a failure must not hide the cancellation
        raise
