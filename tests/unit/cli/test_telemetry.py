"""What the doctor says about those who get spans and conversations."""

from pathlib import Path
from typing import Any

import pytest
from support.gateway import write_config


def test_the_doctor_says_who_sees_what(deerflow: Any, home: Path) -> None:
    langfuse = {
        "enabled": True,
        "public_key": "pk",
        "secret_key": "sk-lf-hidden",
        "host": "http://127.0.0.1:9",
    }
    config = write_config(
        home,
        None,
        telemetry={"endpoint": "http://user:hunter2@127.0.0.1:4318"},
        tracing={"langfuse": langfuse, "langsmith": {"enabled": True, "api_key": "lsv2_hidden"}},
    )

    result = deerflow("doctor", "--config", str(config))

    shown = " ".join(result.output.split())
    assert "spans go to http://(hidden)@127.0.0.1:4318/v1/traces" in shown
    assert "conversations go to LangSmith (deer-flow) at https://api.smith.langchain.com" in shown
    assert "conversations go to Langfuse at http://127.0.0.1:9" in shown
    assert not any(secret in shown for secret in ("hunter2", "sk-lf-hidden", "lsv2_hidden"))


def test_the_doctor_names_a_missing_extra(deerflow: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(home, None, telemetry={"enabled": True})
    monkeypatch.setattr("deerflow.observability.telemetry.find_spec", lambda name: None)

    result = deerflow("doctor", "--config", str(config))

    shown = " ".join(result.output.split())
    assert "OpenTelemetry is on but not installed → install it with:" in shown
    assert "deerflow install telemetry" in shown
    assert result.exit_code == 1
