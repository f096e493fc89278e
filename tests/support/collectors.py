"""Real HTTP servers in the place of those who collect spans and traces.

They take in what the official SDKs send, as far as these need an answer, and keep it for the test.
"""

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override

LANGSMITH_INFO = {
    "version": "0.13.0",
    "batch_ingest_config": {
        "use_multipart_endpoint": True,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 16,
        "size_limit": 100,
        "size_limit_bytes": 20_000_000,
    },
}


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """One span as it came over the wire."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    has_failed: bool
    service: str


class Collector:
    """Answers everything, and keeps it."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                headers = {name.lower(): value for name, value in self.headers.items()}
                collector.received.append(Received(self.command, self.path, headers, body))
                is_info = self.path.endswith("/info")
                answer = json.dumps(LANGSMITH_INFO if is_info else {}).encode()
                is_otlp = self.path.endswith("/v1/traces")
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf" if is_otlp else "application/json")
                self.send_header("content-length", "0" if is_otlp else str(len(answer)))
                self.end_headers()
                if not is_otlp:
                    self.wfile.write(answer)

            do_GET = do_POST = do_PATCH = _take  # noqa: N815 - the names are the library's

            @override
            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def bytes(self) -> bytes:
        """Everything that came, for searching."""
        return b"\n".join(each.body for each in self.received)

    def spans(self) -> list[SeenSpan]:
        """Return all spans that came as OTLP."""
        return [span for each in self.received if "/v1/traces" in each.path for span in _spans(each.body)]

    def langsmith_runs(self) -> dict[str, dict[str, Any]]:
        """Return all runs that came from LangSmith's SDK, by id, later parts over earlier ones."""
        runs: dict[str, dict[str, Any]] = {}
        for each in self.received:
            if each.path.endswith("/runs/multipart"):
                for name, value in _multipart(each):
                    _, run_id, *field = name.split(".")
                    runs.setdefault(run_id, {}).update({field[0]: value} if field else value)
        return runs

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _spans(body: bytes) -> Iterator[SeenSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SeenSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes=_attributes(span.attributes),
                    has_failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    service=service,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


def _multipart(request: Received) -> Iterator[tuple[str, Any]]:
    head = f"content-type: {request.headers['content-type']}\r\n\r\n".encode()
    for part in BytesParser().parsebytes(head + request.body).walk():
        name = part.get_param("name", header="content-disposition")
        if isinstance(name, str) and name.split(".")[0] in ("post", "patch"):
            payload = part.get_payload(decode=True)
            assert isinstance(payload, bytes)
            yield name, json.loads(payload)
