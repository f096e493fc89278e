"""Keeps tracing from costing anything while it is switched off.

LangChain wraps every middleware hook with LangSmith's `traceable`, which visits a thread twice per call
even when nothing is traced. LangSmith's own runtime hook lets those visits run in place.
"""

from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

from langsmith import set_runtime_overrides
from langsmith.utils import tracing_is_enabled

ToThread = Callable[..., Awaitable[Any]]


def quiet_tracing() -> None:
    """Run LangSmith's bookkeeping in place unless tracing is on; call once when the process starts."""
    set_runtime_overrides(aio_to_thread=_in_place)


async def _in_place(
    to_thread: ToThread, context: Context, func: Callable[..., Any], /, *a: Any, **k: Any
) -> Any:
    if tracing_is_enabled():
        return await to_thread(context, func, *a, **k)
    return context.run(func, *a, **k)
