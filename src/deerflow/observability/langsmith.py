"""LangSmith: traces runs with LangChain's tracer; imported only when it is enabled."""

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
        # The client requires a key; self-hosted servers may ignore it.
        self._client = Client(api_url=options.endpoint, api_key=options.api_key or "none")

    @contextmanager
    def run(self, run: RunRecord, trace_id: str) -> Iterator[BaseCallbackHandler]:
        """Trace one run; LangSmith groups the runs of a conversation by `thread_id`."""
        about = {"run_id": run.id, "thread_id": run.thread_id, "trace_id": trace_id}
        yield LangChainTracer(project_name=self._project, client=self._client, metadata=about)

    def close(self) -> None:
        """Send pending traces."""
        self._client.close(timeout=_CLOSE_SECONDS)
