"""Trace runs with services that use LangChain callbacks; imported only when one is enabled."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler
from langchain_core.runnables.config import ensure_config

from deerflow.domain import RunRecord

logger = logging.getLogger(__name__)


class Service(Protocol):
    """One tracing service."""

    handler_type: type[BaseCallbackHandler]

    def run(self, run: RunRecord, trace_id: str) -> AbstractContextManager[BaseCallbackHandler]:
        """Trace one run for the length of a block; yield the callback handler."""

    def close(self) -> None:
        """Send pending traces."""


class CallbackTracers:
    """All enabled tracing services."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._types = tuple(service.handler_type for service in services)

    @contextmanager
    def run(self, run: RunRecord, trace_id: str) -> Iterator[Sequence[BaseCallbackHandler]]:
        """Trace a run; yield the callback handlers for the graph's config."""
        with ExitStack() as stack:
            handlers: list[BaseCallbackHandler] = []
            for service in self._services:
                try:
                    handlers.append(stack.enter_context(service.run(run, trace_id)))
                except Exception as error:  # an SDK may raise anything, and a run must not fail for it
                    logger.warning("%s does not follow run %s: %s", type(service).__name__, run.id, error)
            yield handlers

    def here(self) -> Any:
        """Return the callbacks for a sub-agent, with the tool call that starts it as parent.

        Only those of the services: LangGraph's would mix the sub-agent's tokens into the lead agent's stream.
        """
        found = ensure_config().get("callbacks")
        if not isinstance(found, AsyncCallbackManager):
            return None
        kept = [handler for handler in found.inheritable_handlers if isinstance(handler, self._types)]
        return AsyncCallbackManager(
            handlers=kept, inheritable_handlers=kept, parent_run_id=found.parent_run_id
        )

    def close(self) -> None:
        """Send the pending traces of every service."""
        for service in self._services:
            try:
                service.close()
            except Exception as error:  # an SDK may raise anything, and the others must be closed
                logger.warning("%s: not everything was sent: %s", type(service).__name__, error)
