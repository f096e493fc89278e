"""Opens the watch of one process: loads only those collectors that somebody asked for."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module

from deerflow.config import LoadedSettings
from deerflow.observability.logs import Redactor, secrets_of
from deerflow.observability.telemetry import Audience, audience_of
from deerflow.observability.watch import Spans, Tracers, Watch

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10


@asynccontextmanager
async def open_watch(loaded: LoadedSettings) -> AsyncIterator[Watch]:
    """Open the watch that these settings ask for; what is left to send goes out with the block."""
    audience = audience_of(loaded)
    for problem in audience.problems:
        logger.warning("%s; runs go on without it", problem)
    redact = Redactor(secrets_of(loaded))
    async with AsyncExitStack() as stack:
        spans, tracers = _spans(audience, redact, stack), _tracers(audience, stack)
        yield Watch(spans=spans, tracers=tracers, redact=redact)


def _spans(audience: Audience, redact: Redactor, stack: AsyncExitStack) -> Spans | None:
    if audience.spans is None:
        return None
    made = import_module("deerflow.observability.spans").OpenTelemetrySpans(audience.spans, redact)
    stack.push_async_callback(_close, made.close)
    spans: Spans = made
    return spans


def _tracers(audience: Audience, stack: AsyncExitStack) -> Tracers | None:
    services = []
    if audience.langsmith is not None:
        services.append(import_module("deerflow.observability.langsmith").LangSmith(audience.langsmith))
    if audience.langfuse is not None:
        services.append(import_module("deerflow.observability.langfuse").Langfuse(audience.langfuse))
    if not services:
        return None
    made = import_module("deerflow.observability.tracers").CallbackTracers(services)
    stack.push_async_callback(_close, made.close)
    tracers: Tracers = made
    return tracers


async def _close(close: Callable[[], None]) -> None:
    """Close in a thread of its own: a collector that does not answer may hold up nobody for long."""
    thread = threading.Thread(target=close, name="telemetry", daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, _CLOSE_SECONDS)
    if thread.is_alive():
        logger.warning("telemetry: the last spans could not be sent in %s seconds", _CLOSE_SECONDS)
