"""What the doctor says about MCP servers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from deerflow.app import configured
from deerflow.cli import doctor

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def config(home: Path) -> Path:
    def program(script: str, *arguments: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(SUPPORT / script), *arguments]}

    servers = {
        "good": program("mcp_broken.py", "plain"),
        "quit": {**program("mcp_broken.py", "quit"), "env": {"TOKEN": "t-very-secret"}},
        "asleep": {"command": "nowhere", "enabled": False},
    }
    (home / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))
    path = home / "config.yaml"
    path.write_text("sandbox: {use: local}\n")
    return path


def test_the_doctor_names_tools_that_wait_for_an_approval(deerflow: Any, home: Path, config: Path) -> None:
    told = home / "told.json"
    told.write_text(json.dumps({"add": {"description": "Adds."}}))
    program = {"command": sys.executable, "args": [str(SUPPORT / "mcp_broken.py"), "told", str(told)]}
    (home / "extensions_config.json").write_text(json.dumps({"mcpServers": {"sums": program}}))
    config.write_text("sandbox: {use: local}\nmcp: {tool_approval: all}\n")

    result = deerflow("doctor", "--config", str(config))

    text = " ".join(result.output.split())
    assert "sums: add is withheld: it is new" in text
    assert "deerflow mcp approve sums" in text


def test_the_doctor_opens_every_server_and_says_what_came_of_it(deerflow: Any, config: Path) -> None:
    result = deerflow("doctor", "--config", str(config))

    text = " ".join(result.output.split())
    assert "good: 4 tool(s)" in text
    assert "quit: it ended with exit code 5" in text
    assert "no license found" in text
    assert "runs go on without it" in text
    assert "asleep" not in text
    assert result.exit_code == 1


def test_the_doctor_names_the_package_that_is_missing(
    deerflow: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((doctor, "missing_package"), (configured, "missing_for_mcp")):
        monkeypatch.setattr(module, name, lambda: "deerflow install mcp")

    result = deerflow("doctor", "--config", str(config))

    assert "no MCP server is used" in result.output
    assert "deerflow install mcp" in result.output
