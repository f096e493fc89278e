"""Each configured thing that does not work is named, what concerns security first."""

import logging
from pathlib import Path

import pytest
from support.project import Project

from deerflow.app import DeerFlow
from deerflow.app.configured import faults_of, summary

TEXT = """\
sandbox: {use: local}
models:
  - {name: a, use: "langchain_openai:ChatOpenAI", model: m, api_key: k}
  - {name: b, use: "no_such_package:Model", model: m}
  - {name: c, use: "langchain_openai:ChatOpenAI", model: m, api_key: $UNSET_KEY}
  - {name: d, use: "langchain_openai:ChatOpenAI", model: m}
tools:
  - {name: search, group: web, use: "deerflow.community.search:tool"}
  - {name: ls, group: "file:read", use: "deerflow.tools.files:ls_tool"}
skills: {path: no/such/folder, catalogues: [no/shelf, https://example.org]}
title: {model_name: z, max_wrds: 4}
acp_agents:
  codex: {command: no-such-program, description: Writes code.}
channels:
  slack: {enabled: true, bot_token: x}
auth: {local: {allow_registration: false}}
authorization: {enabled: false}
guardrails:
  enabled: true
  provider: {use: "no.such.module:Provider"}
guardrail: {rules: []}
memory: {storage_path: memory.json}
nonsense: 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, {"PATH": "/usr/bin:/bin", "DEER_FLOW_HOME": str(tmp_path / "home")})


def test_everything_that_does_not_work_is_named_security_first(project: Project) -> None:
    faults = faults_of(project.load(TEXT))

    assert [fault.key for fault in faults] == [
        "guardrail (line 21)",
        "auth (line 16)",
        "guardrails.provider",
        "models[2]",
        "title.max_wrds (line 11)",
        "channels (line 14)",
        "models[b]",
        "title.model_name",
        "tools[search]",
        "skills.path",
        "skills.catalogues[0]",
        "acp_agents.codex",
        "without effect",
    ]
    assert [fault.is_security for fault in faults] == [True] * 3 + [False] * 10
    assert [fault.is_broken for fault in faults] == [True] * 12 + [False]
    assert all(fault.fix for fault in faults if fault.is_broken)
    said = {fault.key: f"{fault.text}; {fault.fix}" for fault in faults}
    assert said["guardrail (line 21)"] == "is not a setting; did you mean guardrails?"
    assert "nobody has to sign in" in said["auth (line 16)"]
    assert "UNSET_KEY is not set" in said["models[2]"]
    assert "no_such_package, which is not installed" in said["models[b]"]
    assert said["title.model_name"] == "there is no model 'z'; there are: a, b, d"
    assert str(project.root / "no/such/folder") in said["skills.path"]
    assert "nonsense (line 23), memory.backend_config.storage_path (line 22)" in said["without effect"]


def test_what_is_switched_off_is_no_fault(project: Project) -> None:
    off = """\
channels: {slack: {enabled: false, bot_token: $NO_TOKEN}, max_concurrency: 3}
authorization: {enabled: false}
auth: {oidc: {enabled: false, providers: {x: {display_name: X, issuer: i, client_id: c, client_secret: $NO}}}}
sandbox: {use: local, ownership: {type: redis, redis_url: $NO_URL}, limits: {memory_mb: 512}}
plugins: []
"""

    loaded = project.load(off)

    assert [fault.key for fault in faults_of(loaded) if fault.is_broken] == [
        "sandbox.ownership (line 4)",
        "auth (line 3)",
    ]
    assert loaded.settings.sandbox.limits.memory_mb == 512  # a variable that nobody reads costs nothing


async def test_a_server_logs_one_line_and_says_it_in_health(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.write(TEXT.replace("  enabled: true\n  provider", "  enabled: false\n  provider"))

    with caplog.at_level(logging.WARNING, logger="deerflow"):
        async with DeerFlow.open(project.source(), takes_over=True) as deerflow:
            started = [record for record in caplog.records if "configured" in record.message]
            faults = deerflow.health()["config"]["faults"]

    assert len(started) == 1
    assert "12 configured thing(s) do not work" in started[0].message
    assert started[0].message.index("auth (line 16): nobody") < started[0].message.index(
        "models[2]: left out"
    )
    assert [fault["key"] for fault in faults][:2] == ["guardrail (line 21)", "auth (line 16)"]
    assert [fault["is_security"] for fault in faults][:3] == [True, True, False]
    assert "models[d]" in [fault["key"] for fault in faults]  # which has no key
    assert "tool search is left out" not in caplog.text


def test_where_all_works_nothing_is_said(project: Project) -> None:
    assert summary(faults_of(project.load("sandbox: {use: local}"))) == ""
