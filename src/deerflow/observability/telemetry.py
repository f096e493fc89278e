"""Read the options of spans and traces from the settings and from the SDKs' environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import unquote

from deerflow.config import LoadedSettings, install_hint
from deerflow.config.telemetry import LangfuseSettings, LangSmithSettings, TelemetrySettings

_LOCAL_COLLECTOR = "http://localhost:4318"
_TRACES_PATH = "/v1/traces"
_LANGSMITH_URL = "https://api.smith.langchain.com"
_LANGFUSE_URL = "https://cloud.langfuse.com"
_PROJECT = "deer-flow"
_YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """Where spans are exported, and what they contain."""

    endpoint: str
    headers: Mapping[str, str]
    service_name: str
    resource: Mapping[str, str]
    sample_ratio: float
    captures_content: bool


@dataclass(frozen=True, slots=True)
class LangSmithOptions:
    """Connection options of LangSmith."""

    api_key: str | None
    project: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class LangfuseOptions:
    """Connection options of Langfuse."""

    public_key: str
    secret_key: str
    host: str


@dataclass(frozen=True, slots=True)
class Audience:
    """The enabled destinations of spans and traces, and the problems of those that cannot be used."""

    spans: SpanOptions | None
    langsmith: LangSmithOptions | None
    langfuse: LangfuseOptions | None
    problems: tuple[str, ...]


def audience_of(loaded: LoadedSettings) -> Audience:
    """Return the destinations of spans and traces for these settings."""
    settings, env, problems = loaded.settings, loaded.env, list[str]()
    spans = _spans(settings.telemetry, env)
    if spans is not None and not _is_address(spans.endpoint):
        problems.append(f"spans cannot go to {spans.endpoint!r}; name an address like {_LOCAL_COLLECTOR}")
        spans = None
    if spans is not None and find_spec("opentelemetry") is None:
        problems.append(_missing("opentelemetry", "OpenTelemetry"))
        spans = None
    langsmith = _langsmith(settings.tracing.langsmith, env)
    if langsmith is not None and langsmith.api_key is None and langsmith.endpoint == _LANGSMITH_URL:
        problems.append("LangSmith is on but has no key; set LANGSMITH_API_KEY, or LANGSMITH_TRACING=false")
        langsmith = None
    langfuse = _langfuse(settings.tracing.langfuse, env, problems)
    if langfuse is not None and find_spec("langfuse") is None:
        problems.append(_missing("langfuse", "Langfuse"))
        langfuse = None
    return Audience(spans, langsmith, langfuse, tuple(problems))


def _missing(package: str, name: str) -> str:
    return f"{name} is on but not installed; install it with: {install_hint(package)}"


def _spans(settings: TelemetrySettings, env: Mapping[str, str]) -> SpanOptions | None:
    traces, base = (env.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("TRACES_", ""))
    endpoint = settings.endpoint or traces or base
    is_on = settings.enabled if settings.enabled is not None else bool(endpoint)
    is_vetoed = settings.enabled is None and (
        _is_yes(env, "OTEL_SDK_DISABLED") or env.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    )
    if not is_on or is_vetoed:
        return None
    is_whole = settings.endpoint is None and bool(traces)
    headers = env.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or env.get("OTEL_EXPORTER_OTLP_HEADERS")
    return SpanOptions(
        endpoint=str(endpoint) if is_whole else _with_path(endpoint or _LOCAL_COLLECTOR),
        headers={**_pairs(headers), **settings.headers},
        service_name=settings.service_name or env.get("OTEL_SERVICE_NAME") or "deerflow",
        resource=_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES")),
        sample_ratio=settings.sample_ratio,
        captures_content=settings.capture_content,
    )


def _langsmith(settings: LangSmithSettings, env: Mapping[str, str]) -> LangSmithOptions | None:
    is_on = settings.enabled
    if is_on is None:
        is_on = any(_is_yes(env, name) for name in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2"))
        is_on = is_on or any(_is_yes(env, name) for name in ("LANGCHAIN_TRACING_V2", "LANGCHAIN_TRACING"))
    if not is_on:
        return None
    return LangSmithOptions(
        api_key=settings.api_key or _named(env, "API_KEY"),
        project=settings.project or _named(env, "PROJECT") or _PROJECT,
        endpoint=settings.endpoint or _named(env, "ENDPOINT") or _LANGSMITH_URL,
    )


def _langfuse(
    settings: LangfuseSettings, env: Mapping[str, str], problems: list[str]
) -> LangfuseOptions | None:
    is_on = settings.enabled if settings.enabled is not None else _is_yes(env, "LANGFUSE_TRACING")
    if not is_on:
        return None
    public = settings.public_key or env.get("LANGFUSE_PUBLIC_KEY")
    secret = settings.secret_key or env.get("LANGFUSE_SECRET_KEY")
    if not public or not secret:
        problems.append("Langfuse is on but has no keys; set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY")
        return None
    host = settings.host or env.get("LANGFUSE_BASE_URL") or env.get("LANGFUSE_HOST") or _LANGFUSE_URL
    return LangfuseOptions(public, secret, host.rstrip("/"))


def _named(env: Mapping[str, str], name: str) -> str | None:
    return env.get(f"LANGSMITH_{name}") or env.get(f"LANGCHAIN_{name}") or None


def _with_path(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(_TRACES_PATH) else f"{base}{_TRACES_PATH}"


def _pairs(text: str | None) -> dict[str, str]:
    """Parse `a=1,b=2`, the format of OpenTelemetry's variables; invalid parts are ignored."""
    parts = (part.partition("=") for part in (text or "").split(","))
    return {name.strip(): unquote(value.strip()) for name, sign, value in parts if sign and name.strip()}


def _is_address(endpoint: str) -> bool:
    return endpoint.startswith(("http://", "https://"))


def _is_yes(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().lower() in _YES
