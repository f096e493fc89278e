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
from deerflow.cli.markdown import TerminalMarkdown
from deerflow.cli.progress import Progress, fitted
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


def test_a_citation_is_shown_by_what_it_cites_and_code_stays_as_it_is() -> None:
    out = Console(file=io.StringIO(), width=80)

    out.print(TerminalMarkdown("Yes [citation:a.md:3](/mnt/a.md#L3), `[citation:b](c)`."), crop=False)

    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().strip() == "Yes a.md:3, [citation:b](c)."


def test_a_stopped_answer_is_shown_as_far_as_it_was() -> None:
    err = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = Progress(err, "t1")
    chunk = {"type": "AIMessageChunk", "id": "m1", "content": f"Once upon{CLIPBOARD} a time"}
    progress.take(ClientEvent("1", "messages", [chunk, {}]))

    progress.say_stopped()

    assert isinstance(err.file, io.StringIO)
    shown = err.file.getvalue()
    assert shown.index("Once upon") < shown.index("Stopped. What was done is kept")
    assert "\x1b]52" not in shown


def test_a_failed_try_says_all_of_why() -> None:
    err = Console(file=io.StringIO(), width=80)
    progress = Progress(err, "t1")
    progress.start()
    said = f"Attempt 1 of 3 failed; trying again in 1 s: {'The server is away. ' * 10}(port 3955 was refused)"

    progress.take(ClientEvent("1", "custom", {"type": "llm_retry", "message": said}))

    assert isinstance(err.file, io.StringIO)
    assert "(port 3955 was refused)" in err.file.getvalue()


def test_failed_steps_are_marked_also_those_of_a_sub_agent() -> None:
    err = Console(file=io.StringIO(), width=120)
    progress = Progress(err, "t1")
    progress.start()
    failed = {
        "type": "tool",
        "name": "bash",
        "content": "oh\nExit code: 3",
        "status": "error",
        "additional_kwargs": {"exit_code": 3},
    }
    task = {"task_id": "a", "description": "Try it"}
    progress.take(ClientEvent("1", "messages", [failed, {}]))
    for kind, more in (
        ("started", {}),
        ("running", {"message": failed}),
        ("running", {"message": {**failed, "status": "success"}}),
        ("completed", {}),
    ):
        progress.take(ClientEvent("2", "custom", {"type": f"task_{kind}", **task, **more}))

    assert isinstance(err.file, io.StringIO)
    shown = err.file.getvalue()
    assert "✗ bash  exit code 3 → oh" in shown
    assert "✓ task  Try it completed (2 steps, 1 failed)" in shown


def test_neither_a_failure_nor_a_files_name_can_command_the_terminal() -> None:
    err = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = Progress(err, "t1")
    progress.take(ClientEvent("1", "error", {"error": "model", "message": f"refused{CLIPBOARD}"}))

    progress.report([], [Path(f"/outputs/a{CLIPBOARD}.md")], Console(file=io.StringIO()))

    assert isinstance(err.file, io.StringIO)
    shown = err.file.getvalue()
    assert "refused\\x1b]52" in shown
    assert "\x1b]52" not in shown


def shown_as(markdown: str, *, width: int = 40) -> list[str]:
    out = Console(file=io.StringIO(), width=width)
    out.print(TerminalMarkdown(markdown), crop=False)
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().strip("\n").split("\n")]


@pytest.mark.parametrize("before", ["", "1. Install it:\n\n   ", "> "])
def test_a_long_command_stays_one_line(before: str) -> None:
    command = "docker run --rm -it -v /srv/data:/mnt/data ghcr.io/example/image python -m app"
    margin = {"": "", "> ": "> "}.get(before, "   ")

    lines = shown_as(f"{before}```bash\n{margin}{command}\n{margin}```")

    assert any(line.endswith(command) for line in lines), lines


def test_items_below_a_numbered_one_keep_their_level() -> None:
    lines = shown_as("1. one\n  - two\n    - three\n  - four\n2. five\n\nEnd\n\n    - code")

    starts = [len(line) - len(line.lstrip()) for line in lines[:5]]
    assert starts[0] == starts[4]
    assert starts[0] < starts[1] == starts[3] < starts[2]
    assert [line.strip() for line in lines[:5]] == ["1. one", "• two", "• three", "• four", "2. five"]
    assert "- code" in lines


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("Compare the approaches in redis.md", 40, "Compare the approaches in redis.md"),
        ("Compare the approaches in redis.md", 20, "Compare the…"),
        ("Compare the approaches in redis.md", 23, "Compare the approaches…"),
        ("/mnt/user-data/outputs/report.md", 12, "/mnt/user-d…"),
        ("比较这些笔记中的方法", 9, "比较这些…"),
    ],
)
def test_a_title_is_cut_between_words(text: str, width: int, cut: str) -> None:
    assert fitted(text, width) == cut


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"It is \(a_1 * b_2 \\ \{x\}\) here.", r"It is \(a_1 * b_2 \\ \{x\}\) here."),
        ("\\[\n- x\n\\]", r"\[ - x \]"),
        ("$$a_1 *b* c_2$$", "$$a_1 *b* c_2$$"),
        (r"`\(a_1\)` and open \(b *c*", r"\(a_1\) and open (b c"),
        ("```\n\\(a\\)", r"\(a\)"),
    ],
)
def test_a_formula_keeps_every_character(text: str, shown: str) -> None:
    out = Console(file=io.StringIO(), width=80)

    out.print(TerminalMarkdown(text))

    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().strip() == shown


def test_what_to_type_after_a_stop_is_one_line() -> None:
    err = Console(file=io.StringIO(), force_terminal=True, width=40)

    Progress(err, "0123456789-0123456789").say_stopped()

    assert isinstance(err.file, io.StringIO)
    assert 'deerflow run --thread 0123456789-0123456789 "…"' in err.file.getvalue()


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
        (
            {
                "models": [
                    {"name": "a", "use": "langchain_openai:ChatOpenAI", "model": "m", "fallbacks": ["a"]}
                ]
            },
            "form a cycle",
        ),
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
