"""`python`: the same bounds as `bash`, and code that arrives as it was written."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.sandboxes import FolderSandbox, run_context
from support.tool_calls import answer_of

from deerflow.config import SandboxSettings, Settings
from deerflow.tools.shell import MAX_CODE_BYTES, python_tool


async def run(tmp_path: Path, code: str, **options: Any) -> Any:
    return await answer_of(python_tool, run_context(tmp_path, **options), description="", code=code)


async def test_code_runs_and_what_it_prints_comes_back(tmp_path: Path) -> None:
    answer = await run(tmp_path, "print(6 * 7)")

    assert (answer.content, answer.status, answer.name) == ("42\n", "success", "python")


async def test_a_failing_program_shows_its_traceback_and_exit_code(tmp_path: Path) -> None:
    answer = await run(tmp_path, "print('begun')\n\nraise ValueError('no such deer')")

    assert answer.text.startswith("begun\n")
    assert "line 3" in answer.text
    assert "ValueError: no such deer\nExit code: 1" in answer.text
    assert (answer.status, answer.name, answer.additional_kwargs) == ("error", "python", {"exit_code": 1})


@pytest.mark.parametrize(
    "code",
    [
        "print('''a 'quoted' \"word\"''')",
        "print('$HOME `id` $(id) \\\\ ! %s')",
        "print('日本 😀')",
        "print('''EOF\nEND_\nEND_0''')",
        'print("it\'s")',
    ],
)
async def test_no_character_of_the_code_means_anything_to_the_shell(tmp_path: Path, code: str) -> None:
    printed: list[str] = []

    answer = await run(tmp_path, code)
    exec(code, {"print": lambda text: printed.append(f"{text}\n")})

    assert answer.content == "".join(printed)


async def test_nobody_answers_input_and_files_are_found_in_the_working_directory(tmp_path: Path) -> None:
    sandbox = FolderSandbox(tmp_path)
    (tmp_path / "helper.py").write_text("WORD = 'found'")

    answer = await run(tmp_path, "import helper; print(helper.WORD)", sandbox=sandbox)

    assert answer.content == "found\n"


async def test_code_that_runs_too_long_is_stopped_with_what_it_printed(tmp_path: Path) -> None:
    for seconds in (2, 10, 40):
        settings = Settings(sandbox=SandboxSettings(bash_command_timeout=seconds))
        answer = await run(tmp_path, "print('begun')\nimport time; time.sleep(100)", settings=settings)
        if "begun" in answer.text:  # else the machine is busy, and it had not even begun
            break

    assert answer.status == "error"
    assert answer.text.startswith(f"begun\n[Stopped: still running after {seconds} seconds.")


async def test_output_is_shown_while_it_runs(tmp_path: Path) -> None:
    published: list[Mapping[str, Any]] = []

    await run(tmp_path, "print('live')", published=published)

    assert [event["text"] for event in published if event["type"] == "tool_output"] == ["live\n"]


async def test_where_commands_are_off_nothing_runs_and_the_reason_is_passed_on(tmp_path: Path) -> None:
    sandbox = FolderSandbox(tmp_path, refusal="Commands are off: set allow_host_bash.")

    answer = await run(tmp_path, "print(1)", sandbox=sandbox)

    assert (answer.content, answer.status) == ("Commands are off: set allow_host_bash.", "error")
    assert sandbox.commands == []


@pytest.mark.parametrize("code", ["", "x" * (MAX_CODE_BYTES + 1), "print(1)\0", "'\ud800'"])
async def test_code_that_no_sandbox_takes_is_refused_with_what_to_do(tmp_path: Path, code: str) -> None:
    sandbox = FolderSandbox(tmp_path)

    answer = await run(tmp_path, code, sandbox=sandbox)

    assert answer.status == "error"
    assert sandbox.commands == []


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    answers = await asyncio.gather(*(run(tmp_path / str(n), f"print({n})") for n in range(3)))

    assert [answer.content for answer in answers] == ["0\n", "1\n", "2\n"]
