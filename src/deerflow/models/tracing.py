"""Removes the cost of LangSmith tracing while tracing is disabled.

LangChain wraps every middleware hook with LangSmith's `traceable`, which switches to a thread twice per call
even when tracing is disabled. LangSmith's runtime override lets this work run in the event loop.
"""

from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

from langsmith import set_runtime_overrides
from langsmith.utils import tracing_is_enabled

ToThread = Callable[..., Awaitable[Any]]


def quiet_tracing() -> None:
    """Run LangSmith's bookkeeping without a thread unless tracing is enabled; call once at process start."""
    set_runtime_overrides(aio_to_thread=_in_place)


async def _in_place(
    to_thread: ToThread, context: Context, func: Callable[..., Any], /, *a: Any, **k: Any
) -> Any:
    if tracing_is_enabled():
        return await to_thread(context, func, *a, **k)
    return context.run(func, *a, **k)
