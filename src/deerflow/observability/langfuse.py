"""Langfuse: traces runs with its callback handler for LangChain; imported only when it is enabled."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.callbacks import BaseCallbackHandler
from langfuse import Langfuse as Client
from langfuse import propagate_attributes
from langfuse.langchain import CallbackHandler
from opentelemetry.sdk.trace import TracerProvider

from deerflow.domain import RunRecord
from deerflow.observability.telemetry import LangfuseOptions

_TIMEOUT_SECONDS = 5


class Langfuse:
    """Sends runs to Langfuse, from threads of its SDK."""

    handler_type: type[BaseCallbackHandler] = CallbackHandler

    def __init__(self, options: LangfuseOptions) -> None:
        self._public_key = options.public_key
        # A separate provider: the global one may belong to the application that embeds DeerFlow.
        self._client = Client(
            public_key=options.public_key,
            secret_key=options.secret_key,
            base_url=options.host,
            timeout=_TIMEOUT_SECONDS,
            tracer_provider=TracerProvider(shutdown_on_exit=False),
        )

    @contextmanager
    def run(self, run: RunRecord, trace_id: str) -> Iterator[BaseCallbackHandler]:
        """Trace one run; Langfuse groups the runs of a conversation by session."""
        with propagate_attributes(session_id=run.thread_id, user_id=run.user_id):
            yield CallbackHandler(public_key=self._public_key, trace_context={"trace_id": trace_id})

    def close(self) -> None:
        """Send pending traces; the SDK keeps its client for the lifetime of the process."""
        self._client.flush()
