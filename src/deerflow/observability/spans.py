"""OpenTelemetry spans, exported over OTLP/HTTP; imported only when they are enabled."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Status, StatusCode
from typing_extensions import override

from deerflow.observability.logs import Redactor
from deerflow.observability.telemetry import SpanOptions
from deerflow.observability.watch import Attributes

_EXPORT_SECONDS = 5.0
_LONGEST_TEXT = 32_000
_NEW_TRACE: ContextVar[str | None] = ContextVar("new_trace", default=None)
"""The id for the next trace that is started."""


class OpenTelemetrySpans:
    """Creates spans; a thread of the SDK exports them in batches."""

    def __init__(self, options: SpanOptions, redact: Redactor) -> None:
        self.captures_content = options.captures_content
        self._redact = redact
        about = {
            "service.version": version("deerflow"),
            **options.resource,
            "service.name": options.service_name,
        }
        self._provider = TracerProvider(
            resource=Resource.create(about),
            sampler=ParentBasedTraceIdRatio(options.sample_ratio),
            id_generator=_TraceIds(),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(
            endpoint=options.endpoint, headers=dict(options.headers), timeout=_EXPORT_SECONDS
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("deerflow", version("deerflow"))

    @contextmanager
    def open(
        self, name: str, attributes: Attributes, *, trace_id: str | None = None, below: object = None
    ) -> Iterator["_Span"]:
        """Open a span for the length of a block."""
        place = cast("Context | None", below)
        if trace_id is not None:
            _NEW_TRACE.set(trace_id)
            place = Context()  # a run is a root span, whatever span its caller is in
        with self._tracer.start_as_current_span(
            name, place, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            yield _Span(span, self._redact)

    def here(self) -> object:
        """Return the current OpenTelemetry context."""
        return otel_context.get_current()

    def close(self) -> None:
        """Export the remaining spans and shut down; takes a few seconds at most when no collector answers."""
        self._provider.shutdown()


class _Span:
    def __init__(self, span: OtelSpan, redact: Redactor) -> None:
        self._span = span
        self._redact = redact

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes({name: self._shown(value) for name, value in attributes.items()})

    def fail(self, reason: str) -> None:
        # Only the error type: the message may contain conversation text or a secret.
        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR))

    def _shown(self, value: str | int | float | bool) -> str | int | float | bool:
        if not isinstance(value, str):
            return value
        whole = value[:_LONGEST_TEXT].encode(errors="replace").decode()  # a lone surrogate cannot be sent
        return self._redact(whole)


class _TraceIds(IdGenerator):
    """Generates random ids, except for a run's trace, which gets the trace id used in the logs."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    @override
    def generate_span_id(self) -> int:
        return self._random.generate_span_id()

    @override
    def generate_trace_id(self) -> int:
        wanted = _NEW_TRACE.get()
        return int(wanted, 16) if wanted else secrets.randbits(128) or 1
