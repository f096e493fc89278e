"""Langfuse: follows runs with its own handler for LangChain; loaded only where it is wanted."""

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
        # A provider of its own: the process-wide one may belong to whoever embeds us.
        self._client = Client(
            public_key=options.public_key,
            secret_key=options.secret_key,
            base_url=options.host,
            timeout=_TIMEOUT_SECONDS,
            tracer_provider=TracerProvider(shutdown_on_exit=False),
        )

    @contextmanager
    def run(self, run: RunRecord, trace_id: str) -> Iterator[BaseCallbackHandler]:
        """Follow one run; Langfuse groups by session what belongs to one conversation."""
        with propagate_attributes(session_id=run.thread_id, user_id=run.user_id):
            yield CallbackHandler(public_key=self._public_key, trace_context={"trace_id": trace_id})

    def close(self) -> None:
        """Send what is left; the SDK keeps its client for the life of the process."""
        self._client.flush()
