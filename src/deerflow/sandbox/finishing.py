"""Runs work to completion even when its caller is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to completion even when this task is cancelled; re-raise the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)  # a failure must not hide the cancellation
        raise
