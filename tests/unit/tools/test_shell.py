"""`bash`: what the model gets back and what the people watching see."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.sandboxes import FolderSandbox, run_context
from support.tool_calls import answer_of

from deerflow.config import SandboxSettings, Settings
from deerflow.tools.shell import MAX_CODE_BYTES, MAX_LIVE_CHARS, LiveOutput, bash_tool, python_tool


async def test_a_command_runs_and_its_output_comes_back(tmp_path: Path) -> None:
    answer = await answer_of(bash_tool, run_context(tmp_path), description="greet", command="echo hello")

    assert (answer.content, answer.status, answer.name) == ("hello\n", "success", "bash")


async def test_a_forgotten_description_costs_no_turn(tmp_path: Path) -> None:
    answer = await answer_of(bash_tool, run_context(tmp_path), command="echo hello")

    assert answer.content == "hello\n"
    assert bash_tool.tool_call_schema.model_json_schema()["required"] == ["description", "command"]


async def test_the_model_sees_no_runtime_in_the_schema() -> None:
    assert list(bash_tool.args) == ["description", "command"]


async def test_a_failing_command_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    answer = await answer_of(bash_tool, run_context(tmp_path), description="", command="printf no; exit 3")

    assert answer.content == "no\nExit code: 3"
    assert (answer.status, answer.name, answer.additional_kwargs) == ("error", "bash", {"exit_code": 3})


async def test_silence_is_said(tmp_path: Path) -> None:
    answer = await answer_of(bash_tool, run_context(tmp_path), description="", command="true")

    assert answer.content == "(no output)"


async def test_a_timeout_returns_what_was_printed_and_the_reason(tmp_path: Path) -> None:
    for seconds in (1, 10, 40):
        settings = Settings(sandbox=SandboxSettings(bash_command_timeout=seconds))
        context = run_context(tmp_path, settings=settings)
        answer = await answer_of(bash_tool, context, description="", command="echo begun; sleep 100")
        if "begun" in answer.text:  # else the machine is busy, and it had not even begun
            break

    assert answer.status == "error"
    assert answer.text.startswith(f"begun\n[Stopped: still running after {seconds} seconds.")


async def test_a_refusing_sandbox_is_not_asked_and_its_reason_is_passed_on(tmp_path: Path) -> None:
    sandbox = FolderSandbox(tmp_path, refusal="Commands are off: set allow_host_bash.")

    answer = await answer_of(bash_tool, run_context(tmp_path, sandbox=sandbox), description="", command="ls")

    assert (answer.content, answer.status) == ("Commands are off: set allow_host_bash.", "error")
    assert sandbox.commands == []


async def test_a_long_output_loses_its_middle_and_says_how_much(tmp_path: Path) -> None:
    settings = Settings(sandbox=SandboxSettings(bash_output_max_chars=100))
    context = run_context(tmp_path, settings=settings)

    answer = await answer_of(bash_tool, context, description="", command="seq 1000")

    assert answer.text.startswith("1\n2\n")
    assert answer.text.endswith("\n1000\n")
    assert "[3793 of 3893 characters left out]" in answer.text


async def test_output_reaches_the_people_watching_with_the_call_it_belongs_to(tmp_path: Path) -> None:
    published: list[Mapping[str, Any]] = []
    context = run_context(tmp_path, published=published)

    await answer_of(bash_tool, context, description="", command="seq 3")

    assert {(event["type"], event["tool_call_id"]) for event in published} == {("tool_output", "call-1")}
    assert "".join(event["text"] for event in published) == "1\n2\n3\n"


async def test_a_nul_character_is_refused_without_repeating_the_command(tmp_path: Path) -> None:
    sandbox = FolderSandbox(tmp_path)

    answer = await answer_of(
        bash_tool, run_context(tmp_path, sandbox=sandbox), description="", command="echo secret\0"
    )

    assert answer.status == "error"
    assert "NUL" in answer.text
    assert "secret" not in answer.text
    assert sandbox.commands == []


async def test_pieces_are_gathered_for_a_moment() -> None:
    shown: list[str] = []
    arrived = asyncio.Event()

    def show(text: str) -> None:
        shown.append(text)
        arrived.set()

    with LiveOutput(show) as live:
        for number in range(50):
            live(f"{number} ")
        assert shown == []
        await asyncio.wait_for(arrived.wait(), 60)
        live("last")

    assert shown == ["".join(f"{number} " for number in range(50)), "last"]


async def test_a_large_piece_does_not_wait() -> None:
    shown: list[str] = []

    with LiveOutput(shown.append) as live:
        live("x" * 5000)

        assert shown == ["x" * 5000]


async def test_a_flood_is_shown_live_only_up_to_a_limit() -> None:
    shown: list[str] = []

    with LiveOutput(shown.append) as live:
        for _ in range(300):
            live("y" * 1000)

    text = "".join(shown)
    assert text.count("y") == MAX_LIVE_CHARS
    assert text.endswith("[more output follows; it is not shown live]\n")


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


@pytest.mark.parametrize(
    "code", ["python3 /mnt/skills/public/x/scripts/y.py a.csv", "python -m pip install x", "pip install x"]
)
async def test_a_shell_command_is_no_python_code(tmp_path: Path, code: str) -> None:
    sandbox = FolderSandbox(tmp_path)

    answer = await run(tmp_path, code, sandbox=sandbox)
    other = await run(tmp_path, "python = 4\nbash = python -1\nprint(bash)")

    assert "call the tool bash" in str(answer.content)
    assert sandbox.commands == []
    assert other.content == "3\n"


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    answers = await asyncio.gather(*(run(tmp_path / str(n), f"print({n})") for n in range(3)))

    assert [answer.content for answer in answers] == ["0\n", "1\n", "2\n"]
