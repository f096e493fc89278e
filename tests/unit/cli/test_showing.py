"""What a model says is shown in the terminal, and never obeyed by it."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from support.gateway import write_config
from support.model_server import ScriptedModel

from deerflow.cli import memory
from deerflow.cli.progress import Progress
from deerflow.cli.tasks import _show
from deerflow.client import ClientEvent
from deerflow.memory.base import HISTORY_SECTIONS, USER_SECTIONS

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
"""Puts a command into the clipboard, where a terminal obeys it."""


def test_brackets_and_codes_in_a_tasks_description_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "task_id": "t1",
        "status": "running",
        "subagent_type": "bash",
        "message_count": 1,
        "description": f"Look at [/etc] {CLIPBOARD}",
        "path": "/threads/a/runs/b",
    }

    _show([row])

    out = capsys.readouterr().out
    assert "[/etc]" in out
    assert "\x1b]52" not in out


def test_an_answer_cannot_command_the_terminal() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = Progress(Console(file=io.StringIO()), "t1")
    chunk = {"type": "AIMessageChunk", "id": "m1", "content": f"Fine{CLIPBOARD} 👨‍👩‍👧."}
    progress.take(ClientEvent("1", "messages", [chunk, {}]))

    progress.report([], [], out)

    assert isinstance(out.file, io.StringIO)
    shown = out.file.getvalue()
    assert "\x1b]52" not in shown
    assert "👨‍👩‍👧" in shown


def test_neither_a_failure_nor_a_files_name_can_command_the_terminal() -> None:
    err = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = Progress(err, "t1")
    progress.take(ClientEvent("1", "error", {"error": "model", "message": f"refused{CLIPBOARD}"}))

    progress.report([], [Path(f"/outputs/a{CLIPBOARD}.md")], Console(file=io.StringIO()))

    assert isinstance(err.file, io.StringIO)
    shown = err.file.getvalue()
    assert "refused\\x1b]52" in shown
    assert "\x1b]52" not in shown


def test_a_memory_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    said = f"Likes tea{CLIPBOARD}"
    fact = {"id": "f1", "confidence": 1.0, "category": "preference", "content": said}
    user, history = (
        {name: {"summary": said} for name in names} for names in (USER_SECTIONS, HISTORY_SECTIONS)
    )

    memory._show({"user": user, "history": history, "facts": [fact]})

    shown = capsys.readouterr().out
    assert "Likes tea\\x1b]52" in shown
    assert "\x1b]52" not in shown


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"models": [{"name": "a", "use": "x:Y", "model": "m", "fallbacks": ["a"]}]}, "go round in a circle"),
        ({"memory": {"model": {"context_window": -1}}}, "memory.backend_config.model.context_window: "),
    ],
)
def test_the_doctor_goes_on_where_no_model_can_be_made(
    deerflow: Any, home: Path, model: ScriptedModel, change: dict[str, Any], problem: str
) -> None:
    config = write_config(home, model.base_url)
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **change}))

    result = deerflow("doctor", "--config", str(config))

    text = " ".join(result.output.split())
    assert problem in text
    assert "run(s) in flight" in text
    assert "1 thing(s) to fix" in text
    assert result.exit_code == 1
