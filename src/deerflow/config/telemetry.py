"""Settings of metrics and tracing: Prometheus, OpenTelemetry, LangSmith, Langfuse."""

from pydantic import Field

from deerflow.config.section import Section


class MetricsSettings(Section):
    """Numbers for Prometheus."""

    enabled: bool = Field(True, description="Serve them at `/metrics`, to those who may use the API.")


class TelemetrySettings(Section):
    """Spans for an OpenTelemetry collector; needs the extra `telemetry`."""

    enabled: bool | None = Field(
        None,
        description="Send spans of runs, model calls, tools and sub-agents. Absent: when `endpoint` or one "
        "of OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`) says where to.",
    )
    endpoint: str | None = Field(
        None,
        description="The collector's address for OTLP over HTTP, such as `http://localhost:4318`. Absent: "
        "as `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` says, or that address.",
    )
    headers: dict[str, str] = Field({}, description="Headers of every request to it, such as a key.")
    service_name: str | None = Field(
        None, description="What the collector calls us. Absent: `OTEL_SERVICE_NAME`, or `deerflow`."
    )
    sample_ratio: float = Field(1.0, ge=0, le=1, description="The share of runs that are sent.")
    capture_content: bool = Field(
        False, description="Put prompts, answers, arguments and results into spans too, not only numbers."
    )


class LangSmithSettings(Section):
    """Traces for LangSmith; they hold whole conversations."""

    enabled: bool | None = Field(None, description="Send them. Absent: as `LANGSMITH_TRACING` says.")
    api_key: str | None = Field(None, description="Absent: `LANGSMITH_API_KEY`.")
    project: str | None = Field(None, description="Absent: `LANGSMITH_PROJECT`, or `deer-flow`.")
    endpoint: str | None = Field(None, description="Absent: `LANGSMITH_ENDPOINT`, or the public service.")


class LangfuseSettings(Section):
    """Traces for Langfuse; they hold whole conversations. Needs the extra `langfuse`."""

    enabled: bool | None = Field(None, description="Send them. Absent: as `LANGFUSE_TRACING` says.")
    public_key: str | None = Field(None, description="Absent: `LANGFUSE_PUBLIC_KEY`.")
    secret_key: str | None = Field(None, description="Absent: `LANGFUSE_SECRET_KEY`.")
    host: str | None = Field(None, description="Absent: `LANGFUSE_BASE_URL`, or the public service.")


class TracingSettings(Section):
    """Services that show what agents did, call by call."""

    langsmith: LangSmithSettings = Field(LangSmithSettings.model_construct(), description="LangSmith.")
    langfuse: LangfuseSettings = Field(LangfuseSettings.model_construct(), description="Langfuse.")
