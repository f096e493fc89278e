"""What operators get to see: numbers, spans, traces and logs of real runs."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.collectors import Collector, SeenSpan
from support.gateway import Gateway, GatewayProcess, model_entry, running_gateway
from support.model_server import ScriptedModel, call, status, text, usage
from support.waiting import until

QUICK = {"retry_base_delay_ms": 1, "retry_cap_delay_ms": 1, "burst_retry_base_delay_ms": 1}
SECRET_WORDS = "the-deer-sleeps-in-the-barn"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last spans take their time: what is looked at here is what they say."""
    for place in ("opening._CLOSE", "langsmith._CLOSE", "langfuse._TIMEOUT", "spans._EXPORT"):
        monkeypatch.setattr(f"deerflow.observability.{place}_SECONDS", 60)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


async def ask(gateway: Gateway | GatewayProcess, question: str, thread: str = "t1", **context: Any) -> str:
    """Run one turn to its end and return the run's id."""
    body = {"input": {"messages": [{"role": "user", "content": question}]}, "context": context}
    async with gateway.client() as api:
        await api.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
        response = await api.post(
            f"/threads/{thread}/runs/stream", json={**body, "stream_mode": ["messages"]}
        )
        assert response.status_code == 200, response.text
        runs = (await api.get(f"/threads/{thread}/runs")).json()
    return str(runs[0]["run_id"])


class Numbers:
    """What `/metrics` says."""

    def __init__(self, page: str) -> None:
        self._samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    def __call__(self, name: str, /, **labels: str) -> float:
        return self._samples["_".join(("deerflow", name)), *sorted(labels.items())]


async def numbers(gateway: Gateway | GatewayProcess) -> Numbers:
    """Ask for all numbers."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        response = await client.get(f"{gateway.url}/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return Numbers(response.text)


async def is_at_rest(gateway: Gateway) -> bool:
    found = await numbers(gateway)
    return found("stream_readers") == found("runs_in_flight") == found("subagents_running") == 0


def script(model: ScriptedModel) -> None:
    """Let a lead agent read a file, call what is not there, delegate and answer."""
    model.on(
        "You count deer", call("ls", description="look", path="/mnt/user-data/workspace"), text("Seven.")
    )
    model.will_say(
        status(503, message="busy"),
        call("write_file", description="w", path="/mnt/user-data/workspace/a.txt", content=SECRET_WORDS),
        call("no_such_tool", x=1),
        call("read_file", description="r", path="/mnt/user-data/workspace/nothing.txt"),
        call("task", description="count", prompt="You count deer", subagent_type="general-purpose"),
        text("There are seven.") + usage(100, 5),
    )


@pytest.fixture
async def measured(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Gateway]:
    with running_gateway(tmp_path, model.base_url, llm_call=QUICK) as gateway:
        yield gateway


async def test_numbers_tell_of_runs_models_tools_and_sub_agents(
    measured: Gateway, model: ScriptedModel
) -> None:
    script(model)

    await ask(measured, "how many deer?", subagent_enabled=True)
    await until(lambda: is_at_rest(measured))  # a reader is counted for a moment after its last event
    found = await numbers(measured)

    assert found("runs_total", status="success") == 1
    assert found("runs_in_flight") == 0
    assert found("run_seconds_count") == found("first_token_seconds_count") == 1
    assert found("model_calls_total", model="scripted", outcome="success") == 7
    assert found("model_calls_total", model="scripted", outcome="error") == 1
    assert found("model_errors_total", model="scripted", reason="provider_error") == 1
    assert found("model_retries_total", reason="provider_error") == 1
    assert found("model_tokens_total", model="scripted", kind="output") >= 5
    assert found("tool_calls_total", tool="write_file", outcome="success") == 1
    assert found("tool_calls_total", tool="read_file", outcome="error") == 1
    assert found("tool_calls_total", tool="other", outcome="error") == 1
    assert found("tool_calls_total", tool="task", outcome="success") == 1
    assert found("tool_calls_total", tool="ls", outcome="success") == 1
    assert found("tool_call_seconds_count", tool="write_file") == 1
    assert found("subagent_tasks_total", subagent="general-purpose", status="completed") == 1
    assert found("subagents_running") == found("subagents_queued") == found("stream_readers") == 0
    assert found("events_written_total") > 10


async def test_numbers_go_on_in_langgraphs_place_and_can_be_switched_off(
    measured: Gateway, tmp_path: Path
) -> None:
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        there = await client.get(f"{measured.api}/langgraph/metrics")
        stranger = await client.get(f"{measured.url}/metrics", headers={"Host": "evil.example.org"})
        with running_gateway(tmp_path / "off", None, metrics={"enabled": False}) as quiet:
            off = await client.get(f"{quiet.url}/metrics")

    assert there.status_code == 200
    assert {"deerflow_runs_total", "process_resident_memory_bytes"} < set(there.text.split())
    assert stranger.status_code == 403
    assert (off.status_code, "metrics.enabled" in off.text) == (404, True)


async def test_spans_hang_together_across_sub_agents_and_hold_no_words(
    tmp_path: Path, model: ScriptedModel, collector: Collector
) -> None:
    script(model)
    telemetry = {"endpoint": collector.url, "headers": {"x-team": "deer"}, "service_name": "forest"}

    with running_gateway(tmp_path, model.base_url, llm_call=QUICK, telemetry=telemetry) as gateway:
        run_id = await ask(gateway, f"how many deer? {SECRET_WORDS}", subagent_enabled=True)

    spans = {span.span_id: span for span in collector.spans()}
    run = one(spans, "run")
    assert {span.trace_id for span in spans.values()} == {run_id.replace("-", "")}
    assert run.parent_id == ""
    assert (run.attributes["deerflow.status"], run.service) == ("success", "forest")
    assert run.attributes["gen_ai.conversation.id"] == "t1"
    delegated = one(spans, "execute_tool task")
    task = one(spans, "invoke_agent general-purpose")
    assert (delegated.parent_id, task.parent_id) == (run.span_id, delegated.span_id)
    inner = [span for span in spans.values() if span.parent_id == task.span_id]
    assert sorted(span.name for span in inner) == ["chat scripted", "chat scripted", "execute_tool ls"]
    outer = [span.name for span in spans.values() if span.parent_id == run.span_id]
    assert outer.count("chat scripted") == 6
    assert one(spans, "execute_tool read_file").has_failed
    assert collector.received[0].path == "/v1/traces"
    assert collector.received[0].headers["x-team"] == "deer"
    assert SECRET_WORDS.encode() not in collector.bytes


async def test_spans_hold_the_words_where_that_is_wanted_but_no_secret(
    tmp_path: Path, model: ScriptedModel, collector: Collector
) -> None:
    script(model)
    telemetry = {"endpoint": collector.url, "capture_content": True}

    with running_gateway(tmp_path, model.base_url, llm_call=QUICK, telemetry=telemetry) as gateway:
        await ask(gateway, f"{SECRET_WORDS}, and my key is sk-test-1234567890", subagent_enabled=True)

    spans = {span.span_id: span for span in collector.spans()}
    written = one(spans, "execute_tool write_file").attributes
    assert SECRET_WORDS in written["gen_ai.tool.call.arguments"]
    assert "Wrote" in written["gen_ai.tool.call.result"]
    assert SECRET_WORDS in str([span.attributes.get("gen_ai.input.messages") for span in spans.values()])
    assert b"sk-test-1234567890" not in collector.bytes


async def test_the_variables_of_opentelemetry_switch_spans_on(
    tmp_path: Path, model: ScriptedModel, collector: Collector
) -> None:
    (tmp_path / ".env").write_text(
        f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}/otel\nOTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20x\n"
        "OTEL_SERVICE_NAME=from-env\nOTEL_RESOURCE_ATTRIBUTES=deployment.environment=test\n"
    )
    model.will_say(text("Hello."))

    with running_gateway(tmp_path, model.base_url) as gateway:
        await ask(gateway, "hi")

    assert {(each.path, each.headers["authorization"]) for each in collector.received} == {
        ("/otel/v1/traces", "Bearer x")
    }
    assert {span.service for span in collector.spans()} == {"from-env"}


async def test_a_collector_that_is_away_disturbs_no_run(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(text("Hello."))

    with running_gateway(tmp_path, model.base_url, telemetry={"endpoint": "http://127.0.0.1:9"}) as gateway:
        await ask(gateway, "hi")
        await until(lambda: is_at_rest(gateway))
        found = await numbers(gateway)

    assert found("runs_total", status="success") == 1


def one(spans: dict[str, SeenSpan], name: str) -> SeenSpan:
    (found,) = [span for span in spans.values() if span.name == name]
    return found


async def test_langsmith_follows_runs_and_their_sub_agents(
    tmp_path: Path, model: ScriptedModel, collector: Collector
) -> None:
    script(model)
    (tmp_path / ".env").write_text(
        f"LANGSMITH_TRACING=true\nLANGSMITH_API_KEY=lsv2_x\nLANGSMITH_ENDPOINT={collector.url}\n"
    )

    with running_gateway(tmp_path, model.base_url, llm_call=QUICK) as gateway:
        run_id = await ask(gateway, "how many deer?", subagent_enabled=True)

    runs = collector.langsmith_runs()
    by_name = {run["name"]: run for run in runs.values()}
    root = by_name["lead_agent"]
    assert root["session_name"] == "deer-flow"
    assert root["extra"]["metadata"]["run_id"] == run_id
    assert {run["trace_id"] for run in runs.values()} == {root["id"]}
    assert by_name["general-purpose"]["parent_run_id"] == by_name["task"]["id"]
    assert "how many deer?" in json.dumps(root["inputs"])
    assert by_name["read_file"]["run_type"] == "tool"
    assert {each.headers["x-api-key"] for each in collector.received} == {"lsv2_x"}


async def test_langfuse_follows_runs_and_their_sub_agents(
    tmp_path: Path, model: ScriptedModel, collector: Collector
) -> None:
    script(model)
    langfuse = {"enabled": True, "public_key": "pk-lf-1", "secret_key": "sk-lf-1", "host": collector.url}

    with running_gateway(tmp_path, model.base_url, llm_call=QUICK, tracing={"langfuse": langfuse}) as gateway:
        run_id = await ask(gateway, "how many deer?", subagent_enabled=True)

    spans = {span.span_id: span for span in collector.spans()}
    assert {span.trace_id for span in spans.values()} == {run_id.replace("-", "")}
    task, delegated = one(spans, "general-purpose"), one(spans, "task")
    assert task.parent_id == delegated.span_id
    assert one(spans, "lead_agent").attributes["session.id"] == "t1"
    assert "how many deer?" in str(one(spans, "lead_agent").attributes)
    assert {each.path for each in collector.received} == {"/api/public/otel/v1/traces"}
    assert collector.received[0].headers["authorization"].startswith("Basic ")


async def test_every_line_of_a_run_carries_its_ids_and_no_key(tmp_path: Path, model: ScriptedModel) -> None:
    script(model)
    server = GatewayProcess(
        tmp_path,
        None,
        models=[model_entry(model.base_url, api_key="$PLAIN_WORD")],
        llm_call=QUICK,
        logging={"enhance": {"enabled": True, "format": "json"}},
        log_level="debug",
    )
    server.start({"PLAIN_WORD": "mygraciousgoodness"})
    try:
        run_id = await ask(server, "how many deer?", subagent_enabled=True)
    finally:
        server.stop()

    assert "mygraciousgoodness" not in server.log
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    ours = [line for line in lines if line["logger"].startswith("deerflow.") and "task" in line["message"]]
    retry = next(line for line in lines if "again in" in line["message"])
    assert {line["run_id"] for line in [*ours, retry]} == {run_id}
    assert {line["trace_id"] for line in [*ours, retry]} == {run_id.replace("-", "")}
    assert {line["thread_id"] for line in [*ours, retry]} == {"t1"}
    assert all(line["task_id"] for line in ours)
    assert "task_id" not in retry
