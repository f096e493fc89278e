"""Settings of logs, metrics and tracing."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from deerflow.config.section import Section, section

_LEVEL_ALIASES = {"warn": "warning", "fatal": "critical", "trace": "debug"}


def _canonical_level(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    level = value.strip().lower()
    return _LEVEL_ALIASES.get(level, level)


LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_canonical_level)
]


class EnhanceSettings(Section):
    """Format of log lines."""

    enabled: bool = Field(False, description="Use `format`. Otherwise log lines are text.")
    format: Literal["text", "json"] = Field("text", description="`json` writes one JSON object per line.")


class LoggingSettings(Section):
    """Log lines."""

    enhance: EnhanceSettings = section(EnhanceSettings)

    @property
    def format(self) -> Literal["text", "json"]:
        """The effective log format."""
        return self.enhance.format if self.enhance.enabled else "text"


class MetricsSettings(Section):
    """Metrics for Prometheus."""

    enabled: bool = Field(True, description="Serve metrics at `/metrics`, to clients that may use the API.")


class TelemetrySettings(Section):
    """Spans for an OpenTelemetry collector. Needs the extra `telemetry`."""

    enabled: bool | None = Field(
        None,
        description="Send spans of runs, model calls, tools and sub-agents. Absent: if `endpoint` or a "
        "variable of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`) is set.",
    )
    endpoint: str | None = Field(
        None,
        description="URL of the collector for OTLP over HTTP. Absent: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`, or `http://localhost:4318`.",
    )
    headers: dict[str, str] = Field({}, description="Headers of requests to the collector, such as a key.")
    service_name: str | None = Field(
        None, description="Service name in spans. Absent: `OTEL_SERVICE_NAME`, or `deerflow`."
    )
    sample_ratio: float = Field(1.0, ge=0, le=1, description="Share of runs whose spans are sent.")
    capture_content: bool = Field(
        False,
        description="Include prompts, answers, tool arguments and results. Off by default: they may hold "
        "personal data.",
    )


class LangSmithSettings(Section):
    """Traces for LangSmith; they contain whole conversations."""

    enabled: bool | None = Field(None, description="Send traces. Absent: value of `LANGSMITH_TRACING`.")
    api_key: str | None = Field(None, description="API key. Absent: `LANGSMITH_API_KEY`.")
    project: str | None = Field(None, description="Project. Absent: `LANGSMITH_PROJECT`, or `deer-flow`.")
    endpoint: str | None = Field(
        None, description="URL of the service. Absent: `LANGSMITH_ENDPOINT`, or the public service."
    )


class LangfuseSettings(Section):
    """Traces for Langfuse; they contain whole conversations. Needs the extra `langfuse`."""

    enabled: bool | None = Field(None, description="Send traces. Absent: value of `LANGFUSE_TRACING`.")
    public_key: str | None = Field(None, description="Public key. Absent: `LANGFUSE_PUBLIC_KEY`.")
    secret_key: str | None = Field(None, description="Secret key. Absent: `LANGFUSE_SECRET_KEY`.")
    host: str | None = Field(
        None, description="URL of the service. Absent: `LANGFUSE_BASE_URL`, or the public service."
    )


class TracingSettings(Section):
    """Tracing services."""

    langsmith: LangSmithSettings = section(LangSmithSettings)
    langfuse: LangfuseSettings = section(LangfuseSettings)
