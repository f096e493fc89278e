"""LangSmith: follows runs with LangChain's own tracer; loaded only where it is wanted."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client

from deerflow.domain import RunRecord
from deerflow.observability.telemetry import LangSmithOptions

_CLOSE_SECONDS = 5


class LangSmith:
    """Sends runs to LangSmith, from threads of its SDK."""

    handler_type: type[BaseCallbackHandler] = LangChainTracer

    def __init__(self, options: LangSmithOptions) -> None:
        self._project = options.project
        # A key must be some text; servers of one's own may not look at it.
        self._client = Client(api_url=options.endpoint, api_key=options.api_key or "none")

    @contextmanager
    def run(self, run: RunRecord, trace_id: str) -> Iterator[BaseCallbackHandler]:
        """Follow one run; LangSmith groups by `thread_id` what belongs to one conversation."""
        about = {"run_id": run.id, "thread_id": run.thread_id, "trace_id": trace_id}
        yield LangChainTracer(project_name=self._project, client=self._client, metadata=about)

    def close(self) -> None:
        """Send what is left."""
        self._client.close(timeout=_CLOSE_SECONDS)
