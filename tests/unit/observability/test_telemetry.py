"""Who gets spans and traces: settings first, then the variables that people know."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from deerflow.config import load_settings
from deerflow.observability.logs import trace_id_of
from deerflow.observability.meters import MODEL_TOKENS
from deerflow.observability.opening import open_watch
from deerflow.observability.telemetry import Audience, audience_of


@pytest.fixture
def audience(tmp_path: Path) -> Any:
    def read(env: dict[str, str] | None = None, **sections: Any) -> Audience:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
        return audience_of(load_settings(env=env or {}, cwd=tmp_path))

    return read


def test_nobody_looks_on_unless_asked_to(audience: Any) -> None:
    assert audience() == Audience(None, None, None, ())


@pytest.mark.parametrize(
    ("env", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/base/"}, "http://c:4318/base/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/own"}, "http://c/own"),
    ],
)
def test_the_variables_say_where_spans_go(audience: Any, env: dict[str, str], endpoint: str) -> None:
    assert audience(env).spans.endpoint == endpoint


@pytest.mark.parametrize("veto", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_variables_can_say_no_but_the_settings_win(audience: Any, veto: dict[str, str]) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", **veto}

    assert audience(env).spans is None
    assert audience(env, telemetry={"enabled": True}).spans is not None
    assert audience({}, telemetry={"enabled": False, "endpoint": "http://c"}).spans is None


def test_settings_and_variables_add_up(audience: Any) -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=x%20y,,broken", "OTEL_SERVICE_NAME": "env"}

    spans = audience(env, telemetry={"enabled": True, "headers": {"a": "2"}, "service_name": "mine"}).spans

    assert spans.headers == {"a": "2", "b": "x y"}
    assert (spans.service_name, spans.endpoint) == ("mine", "http://localhost:4318/v1/traces")
    assert not spans.captures_content


@pytest.mark.parametrize("name", ["LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"])
def test_langsmith_is_known_by_all_its_names(audience: Any, name: str) -> None:
    found = audience({name: "true", "LANGCHAIN_API_KEY": "k", "LANGSMITH_PROJECT": "p"}).langsmith

    assert (found.api_key, found.project) == ("k", "p")
    assert audience({name: "false", "LANGSMITH_API_KEY": "k"}).langsmith is None


def test_keys_that_are_missing_are_named(audience: Any) -> None:
    smith = audience({"LANGSMITH_TRACING": "1"})
    fuse = audience({"LANGFUSE_TRACING": "true", "LANGFUSE_PUBLIC_KEY": "pk"})

    assert smith.langsmith is fuse.langfuse is None
    assert "LANGSMITH_API_KEY" in smith.problems[0]
    assert "LANGFUSE_SECRET_KEY" in fuse.problems[0]


async def test_a_missing_extra_is_said_and_runs_go_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.yaml").write_text("telemetry: {enabled: true}\n")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "deerflow.observability.telemetry.find_spec",
        lambda name: None if name == "opentelemetry" else found(name),
    )

    async with open_watch(load_settings(env={}, cwd=tmp_path)) as watch:
        assert watch.here() is None

    assert "deerflow install telemetry" in caplog.text


async def test_an_sdk_that_refuses_keeps_nobody_from_working(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.yaml").write_text(
        "telemetry: {endpoint: nonsense}\n"
        "tracing: {langsmith: {enabled: true, api_key: lsv2_x, endpoint: '::nonsense::'}}\n"
    )

    async with open_watch(load_settings(env={}, cwd=tmp_path)) as watch:
        with watch.model_call("m") as seen:
            seen.tokens = {"input": 1}

    assert "spans cannot go to 'nonsense/v1/traces'" in caplog.text
    assert watch.meters.values(MODEL_TOKENS) == {("m", "input"): 1}


def test_a_runs_trace_has_the_runs_own_id() -> None:
    run = "0F8FAD5B-d9cb-469f-a165-70867728950e"

    assert trace_id_of(run) == "0f8fad5bd9cb469fa16570867728950e"
    assert len(trace_id_of("r1")) == 32
    assert int(trace_id_of("r1"), 16)
