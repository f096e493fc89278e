"""Instrument runs, model calls, tool calls and tasks: metrics always, spans and traces when enabled."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from deerflow.domain import RunRecord
from deerflow.observability import meters
from deerflow.observability.logs import Redactor, mark_logs, trace_id_of
from deerflow.observability.meters import Meters, Metric

HANDED_OVER = "handed_over"
"""Status of a run that another process continues."""
Attributes = Mapping[str, str | int | float | bool]
Callback = Any
"""A LangChain callback handler."""


class Span(Protocol):
    """An open span."""

    def set(self, attributes: Attributes) -> None:
        """Set attributes."""

    def fail(self, reason: str) -> None:
        """Mark the span as failed, with the type of the error."""


class Spans(Protocol):
    """Creates spans."""

    captures_content: bool

    def open(
        self, name: str, attributes: Attributes, *, trace_id: str | None = None, below: object = None
    ) -> AbstractContextManager[Span]:
        """Open a span for the length of a block, as child of the current span or of `below`.

        Args:
            trace_id: Start a new trace with this id.
            below: A parent context returned by `here`.
        """

    def here(self) -> object:
        """Return the current span context, for work that runs in another contextvars context."""


class Tracers(Protocol):
    """Tracing services that use LangChain callbacks."""

    def run(self, run: RunRecord, trace_id: str) -> AbstractContextManager[Sequence[Callback]]:
        """Trace a run for the length of a block; yield the callbacks for the graph's config."""

    def here(self) -> Callback | None:
        """Return the current callbacks, for work that runs in another contextvars context."""

    def close(self) -> None:
        """Send pending traces."""


@dataclass(frozen=True, slots=True)
class Where:
    """The parent span and callbacks of work that was started in another contextvars context."""

    span: object = None
    callbacks: Callback | None = None


@dataclass(slots=True)
class RunSeen:
    """Measurements of a run, filled in while it executes."""

    callbacks: Sequence[Callback] = ()
    status: str = HANDED_OVER
    events: int = 0
    first_token_at: float | None = None
    """Measured with `time.monotonic`."""
    totals: Attributes = field(default_factory=dict)


@dataclass(slots=True)
class StepSeen:
    """Measurements of a model call, tool call or task, filled in while it executes."""

    outcome: str = "success"
    reason: str | None = None
    """The kind of error: one of DeerFlow's own names, or the exception's class."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    content: Attributes = field(default_factory=dict)


Count = Callable[[StepSeen, float], None]
"""Records the measurements of a step and its duration in seconds."""


class Watch:
    """Records metrics, spans and traces of the runs of one process."""

    def __init__(
        self,
        *,
        spans: Spans | None = None,
        tracers: Tracers | None = None,
        redact: Redactor | None = None,
    ) -> None:
        self.meters = Meters()
        self.redact = redact or Redactor()
        """Removes the secrets of the settings from texts that people read."""
        self._spans = spans
        self._tracers = tracers

    @property
    def captures_content(self) -> bool:
        """Whether spans include message content."""
        return self._spans is not None and self._spans.captures_content

    def here(self) -> Where | None:
        """Return the parent for work that is started here and runs in its own contextvars context."""
        if self._spans is None and self._tracers is None:
            return None
        return Where(self._spans and self._spans.here(), self._tracers and self._tracers.here())

    @contextmanager
    def run(self, run: RunRecord) -> Iterator[RunSeen]:
        """Instrument a run for the length of a block."""
        trace_id = trace_id_of(run.id)
        mark_logs(trace_id=trace_id, run_id=run.id, thread_id=run.thread_id)
        facts: Attributes = {
            "deerflow.run_id": run.id,
            "deerflow.attempt": run.attempt,
            "gen_ai.conversation.id": run.thread_id,
            "gen_ai.agent.name": run.request.options.agent_name or run.request.assistant_id,
        }
        start = time.monotonic()
        tracing = self._tracers.run(run, trace_id) if self._tracers else nullcontext(())
        with (
            self._counted(meters.RUNS_IN_FLIGHT),
            self._span("run", facts, trace_id=trace_id) as span,
            tracing as callbacks,
        ):
            seen = RunSeen(callbacks)
            try:
                yield seen
            finally:
                self._count_run(seen, start)
                if span is not None:
                    _describe_run(span, seen)

    def model_call(self, model: str, *, task_id: str | None = None) -> AbstractContextManager[StepSeen]:
        """Instrument one model call."""
        facts = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, **_of_task(task_id)}

        def count(seen: StepSeen, seconds: float) -> None:
            self.meters.add(meters.MODEL_CALLS, model, seen.outcome)
            self.meters.observe(meters.MODEL_SECONDS, seconds, model)
            if seen.outcome == "error":
                self.meters.add(meters.MODEL_ERRORS, model, seen.reason or meters.OTHER)
            for kind, tokens in seen.tokens.items():
                self.meters.add(meters.MODEL_TOKENS, model, kind, amount=tokens)

        return self._step(f"chat {model}", facts, count)

    def tool_call(
        self, tool: str, *, call_id: str, task_id: str | None = None
    ) -> AbstractContextManager[StepSeen]:
        """Instrument one tool call, from the model's request to the result that it gets."""
        facts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call_id,
            **_of_task(task_id),
        }

        def count(seen: StepSeen, seconds: float) -> None:
            self.meters.add(meters.TOOL_CALLS, tool, seen.outcome)
            self.meters.observe(meters.TOOL_SECONDS, seconds, tool)

        return self._step(f"execute_tool {tool}", facts, count)

    def task(self, subagent: str, *, task_id: str, below: Where | None) -> AbstractContextManager[StepSeen]:
        """Instrument a sub-agent's task, including its wait for a slot."""
        facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": subagent, **_of_task(task_id)}

        def count(seen: StepSeen, seconds: float) -> None:
            self.meters.add(meters.TASKS, subagent, seen.outcome)
            self.meters.observe(meters.TASK_SECONDS, seconds)

        return self._step(f"invoke_agent {subagent}", facts, count, below=below)

    def reading(self) -> AbstractContextManager[None]:
        """Count a reader of an event stream for the length of a block."""
        return self._counted(meters.READERS)

    def queueing(self) -> AbstractContextManager[None]:
        """Count a task that waits for its slot for the length of a block."""
        return self._counted(meters.TASKS_QUEUED)

    def working(self) -> AbstractContextManager[None]:
        """Count a running task for the length of a block."""
        return self._counted(meters.TASKS_RUNNING)

    @contextmanager
    def _counted(self, gauge: Metric) -> Iterator[None]:
        self.meters.add(gauge)
        try:
            yield
        finally:
            self.meters.add(gauge, amount=-1)

    @contextmanager
    def _step(
        self, name: str, facts: Attributes, count: Count, *, below: Where | None = None
    ) -> Iterator[StepSeen]:
        """Open the span of a step; at its end record its metrics and set the outcome on the span."""
        seen, start = StepSeen(), time.monotonic()
        with self._span(name, facts, below=below) as span:
            try:
                yield seen
            except asyncio.CancelledError:
                seen.outcome = "cancelled"
                raise
            except BaseException as error:
                if seen.outcome == "success":
                    seen.outcome = "error"
                seen.reason = seen.reason or type(error).__name__
                raise
            finally:
                count(seen, time.monotonic() - start)
                if span is not None:
                    _describe(span, seen)

    def _span(
        self, name: str, facts: Attributes, *, trace_id: str | None = None, below: Where | None = None
    ) -> AbstractContextManager[Span | None]:
        if self._spans is None:
            return nullcontext()
        return self._spans.open(name, facts, trace_id=trace_id, below=below.span if below else None)

    def _count_run(self, seen: RunSeen, start: float) -> None:
        self.meters.add(meters.EVENTS, amount=seen.events)
        if seen.first_token_at is not None:
            self.meters.observe(meters.FIRST_TOKEN, seen.first_token_at - start)
        self.meters.add(meters.RUNS, seen.status)
        self.meters.observe(meters.RUN_SECONDS, time.monotonic() - start)


def _of_task(task_id: str | None) -> Attributes:
    return {} if task_id is None else {"deerflow.task_id": task_id}


def _describe_run(span: Span, seen: RunSeen) -> None:
    span.set({"deerflow.status": seen.status, **seen.totals})
    if seen.status in ("error", "timeout"):
        span.fail(seen.status)


def _describe(span: Span, seen: StepSeen) -> None:
    tokens = {f"gen_ai.usage.{kind}_tokens": count for kind, count in seen.tokens.items()}
    span.set({"deerflow.outcome": seen.outcome, **tokens, **seen.content})
    if seen.outcome in ("error", "failed", "timed_out"):
        span.fail(seen.reason or seen.outcome)
