"""Set up telemetry for one process; imports only the integrations that are enabled."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any

from deerflow.config import LoadedSettings
from deerflow.observability.logs import Redactor, secrets_of
from deerflow.observability.telemetry import Audience, audience_of
from deerflow.observability.watch import Spans, Tracers, Watch

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10


@asynccontextmanager
async def open_watch(loaded: LoadedSettings) -> AsyncIterator[Watch]:
    """Create the `Watch` for these settings; pending spans and traces are sent when the block ends."""
    audience = audience_of(loaded)
    for problem in audience.problems:
        logger.warning("%s; runs go on without it", problem)
    redact = Redactor(secrets_of(loaded))
    async with AsyncExitStack() as stack:
        spans, tracers = _spans(audience, redact, stack), _tracers(audience, stack)
        yield Watch(spans=spans, tracers=tracers, redact=redact)


def _spans(audience: Audience, redact: Redactor, stack: AsyncExitStack) -> Spans | None:
    made = _loaded("spans", "OpenTelemetrySpans", audience.spans, redact) if audience.spans else None
    if made is None:
        return None
    stack.push_async_callback(_close, made.close)
    spans: Spans = made
    return spans


def _tracers(audience: Audience, stack: AsyncExitStack) -> Tracers | None:
    wanted = (("langsmith", "LangSmith", audience.langsmith), ("langfuse", "Langfuse", audience.langfuse))
    made = [_loaded(file, name, options) for file, name, options in wanted if options is not None]
    services = [service for service in made if service is not None]
    if not services:
        return None
    tracers: Tracers = _loaded("tracers", "CallbackTracers", services)
    stack.push_async_callback(_close, tracers.close)
    return tracers


def _loaded(file: str, name: str, *arguments: Any) -> Any:
    """Import a class of this package and instantiate it; None when that fails."""
    try:
        return getattr(import_module(f"deerflow.observability.{file}"), name)(*arguments)
    except Exception as error:  # an SDK may raise anything, and telemetry must not stop runs
        logger.warning("%s could not be set up: %s; runs go on without it", name, error)
        return None


async def _close(close: Callable[[], None]) -> None:
    """Close in a daemon thread: a collector that does not answer must not delay the shutdown for long."""
    thread = threading.Thread(target=close, name="telemetry", daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, _CLOSE_SECONDS)
    if thread.is_alive():
        logger.warning("telemetry: the last spans could not be sent in %s seconds", _CLOSE_SECONDS)
