"""The file tools: parameters, limits and what a refusal says."""

from pathlib import Path
from typing import Any

import pytest
from support.loop_watch import LoopWatch
from support.sandboxes import FolderSandbox, run_context
from support.tool_calls import answer_of, run_calls, tool_call

from deerflow.config import SandboxSettings, Settings
from deerflow.tools.files import (
    glob_tool,
    grep_tool,
    ls_tool,
    read_file_tool,
    str_replace_tool,
    write_file_tool,
)

WORKSPACE = "/mnt/user-data/workspace"


def workspace(tmp_path: Path, **files: str | bytes) -> Any:
    context = run_context(tmp_path)
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (context.folders.workspace / name.replace("_", ".")).write_bytes(data)
    return context


def test_each_tool_takes_the_agreed_parameters() -> None:
    assert {tool.name: list(tool.args) for tool in (ls_tool, read_file_tool, write_file_tool)} == {
        "ls": ["description", "path"],
        "read_file": ["description", "path", "start_line", "end_line"],
        "write_file": ["description", "path", "content", "append"],
    }
    assert list(glob_tool.args) == ["description", "pattern", "path", "include_dirs", "max_results"]
    assert list(grep_tool.args) == [
        *("description", "pattern", "path", "glob", "literal", "case_sensitive", "max_results"),
    ]
    assert list(str_replace_tool.args) == ["description", "path", "old_str", "new_str", "replace_all"]


async def test_ls_shows_two_levels_and_cuts_a_long_list(tmp_path: Path) -> None:
    context = run_context(tmp_path, settings=Settings(sandbox=SandboxSettings(ls_output_max_chars=80)))
    (context.folders.workspace / "a" / "b" / "c").mkdir(parents=True)
    (context.folders.workspace / "z.txt").write_text("")

    answer = await answer_of(ls_tool, context, description="", path=WORKSPACE)

    assert answer.content == (
        f"{WORKSPACE}/a/\n{WORKSPACE}/a/b/\n[1 more entries; list a folder below this one.]"
    )


async def test_ls_says_when_there_is_nothing(tmp_path: Path) -> None:
    assert (await answer_of(ls_tool, run_context(tmp_path), path=WORKSPACE)).content == "(empty)"


async def test_glob_lists_paths_and_says_when_there_are_more(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_md="", b_md="", c_txt="")

    answer = await answer_of(glob_tool, context, pattern="**/*.md", path=WORKSPACE, max_results=1)

    assert answer.content == f"{WORKSPACE}/a.md\n[Only the first 1 are shown.]"


class Asked(FolderSandbox):
    """Remembers how many results it was asked for."""

    asked: list[int]

    async def glob(self, path: str, pattern: str, **options: Any) -> tuple[list[str], bool]:
        self.asked = [options["max_results"]]
        return [], False


@pytest.mark.parametrize(("wish", "asked"), [(5000, 1000), (-3, 1), (7, 7)])
async def test_glob_keeps_the_hard_limit(tmp_path: Path, wish: int, asked: int) -> None:
    sandbox = Asked(tmp_path)

    answer = await answer_of(
        glob_tool, run_context(tmp_path, sandbox=sandbox), pattern="*", path=WORKSPACE, max_results=wish
    )

    assert sandbox.asked == [asked]
    assert answer.content == f"No files match * below {WORKSPACE}."


async def test_grep_prints_path_line_and_text(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="one\nTwo\nthree", b_md="two " + "x" * 300)

    found = await answer_of(grep_tool, context, pattern="two", path=WORKSPACE)
    nothing = await answer_of(grep_tool, context, pattern="four", path=WORKSPACE)

    first, second = found.text.split("\n")
    assert first == f"{WORKSPACE}/a.txt:2: Two"
    assert second == f"{WORKSPACE}/b.md:1: two {'x' * 196}…"
    assert nothing.content == f"No lines match below {WORKSPACE}."


async def test_read_file_returns_the_text_as_it_is(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="one\r\n\ntwo\n", e_txt="")

    assert (await answer_of(read_file_tool, context, path=f"{WORKSPACE}/a.txt")).content == "one\r\n\ntwo\n"
    assert (await answer_of(read_file_tool, context, path=f"{WORKSPACE}/e.txt")).content == "(empty)"


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (2, 3, "2\n3\n"),
        (9, None, "9\n10"),
        (None, 1, "1\n"),
        (10, 99, "10"),
        (11, None, "The file has 10 lines; start_line 11 is behind its end."),
        (0, None, "Lines count from 1: give start_line and end_line of at least 1."),
        (5, 2, "end_line 2 is before start_line 5; swap them."),
    ],
)
async def test_read_file_reads_a_range(
    tmp_path: Path, start: int | None, end: int | None, expected: str
) -> None:
    context = workspace(tmp_path, a_txt="\n".join(str(number) for number in range(1, 11)))

    answer = await answer_of(
        read_file_tool, context, path=f"{WORKSPACE}/a.txt", start_line=start, end_line=end
    )

    assert answer.content == expected


async def test_a_cut_read_says_how_to_read_on_until_the_end(tmp_path: Path) -> None:
    limits = Settings(sandbox=SandboxSettings(read_file_output_max_chars=20))
    context = run_context(tmp_path, settings=limits)
    (context.folders.workspace / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 6)))

    first = await answer_of(read_file_tool, context, path=f"{WORKSPACE}/a.txt")
    rest = await answer_of(read_file_tool, context, path=f"{WORKSPACE}/a.txt", start_line=3, end_line=4)

    assert first.content == "line 1\nline 2\n\n[Lines 1-2 of 5 shown; read on with start_line=3.]"
    assert rest.content == "line 3\nline 4\n"


async def test_reading_and_editing_large_files_of_short_lines_holds_nobody_up(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="ab\n" * 2_600_000)
    path = f"{WORKSPACE}/a.txt"

    async with LoopWatch():
        last = await answer_of(read_file_tool, context, path=path, start_line=2_600_000)
        part = await answer_of(read_file_tool, context, path=path, start_line=2_000_000)
        missed = await answer_of(str_replace_tool, context, path=path, old_str="abab" * 2000, new_str="x")

    assert last.text == "ab\n"
    assert part.text.startswith("ab\nab\n")
    assert "[Lines 2000000-" in part.text
    assert "read on with start_line=" in part.text
    assert "not in the file" in missed.text


async def test_one_endless_line_is_cut_and_said(tmp_path: Path) -> None:
    limits = Settings(sandbox=SandboxSettings(read_file_output_max_chars=10))
    context = run_context(tmp_path, settings=limits)
    (context.folders.workspace / "a.txt").write_text("x" * 50 + "\nnext")

    answer = await answer_of(read_file_tool, context, path=f"{WORKSPACE}/a.txt")

    assert answer.text.startswith("x" * 10 + "\n\n[Line 1 of 2 has 50 characters; its first 10 are shown.")
    assert answer.text.endswith("start_line=2 reads on.]")


async def test_a_sandbox_refusal_becomes_an_error_message(tmp_path: Path) -> None:
    answer = await answer_of(read_file_tool, run_context(tmp_path), path="/etc/passwd")

    assert answer.status == "error"
    assert answer.content == "/etc/passwd is outside /mnt/user-data; use a path below it."


async def test_write_file_writes_appends_and_makes_folders(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    path = f"{WORKSPACE}/deep/notes.md"

    first = await answer_of(write_file_tool, context, path=path, content="grün\n")
    await answer_of(write_file_tool, context, path=path, content="two\n", append=True)

    assert first.content == f"Wrote 6 bytes to {path}."
    assert (context.folders.workspace / "deep" / "notes.md").read_text() == "grün\ntwo\n"


async def test_write_file_refuses_more_than_its_limit_but_appends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEERFLOW_WRITE_FILE_MAX_BYTES", "10")
    context = run_context(tmp_path)
    path = f"{WORKSPACE}/a.txt"

    refused = await answer_of(write_file_tool, context, path=path, content="x" * 11)
    appended = await answer_of(write_file_tool, context, path=path, content="x" * 11, append=True)

    assert refused.status == "error"
    assert "11 bytes; one call may write 10" in refused.text
    assert appended.status == "success"


async def test_the_write_limit_is_80_kb_when_the_variable_makes_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEERFLOW_WRITE_FILE_MAX_BYTES", "many")

    answer = await answer_of(
        write_file_tool, run_context(tmp_path), path=f"{WORKSPACE}/a.txt", content="x" * 81_921
    )

    assert "one call may write 81920" in answer.text


async def test_str_replace_changes_the_only_occurrence(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="one two\n")

    answer = await answer_of(str_replace_tool, context, path=f"{WORKSPACE}/a.txt", old_str="two", new_str="2")

    assert answer.content == f"Replaced 1 occurrence in {WORKSPACE}/a.txt."
    assert (context.folders.workspace / "a.txt").read_text() == "one 2\n"


async def test_str_replace_refuses_an_ambiguous_match_and_names_the_lines(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="a\nb\na a\n")
    path = f"{WORKSPACE}/a.txt"

    refused = await answer_of(str_replace_tool, context, path=path, old_str="a", new_str="c")
    replaced = await answer_of(
        str_replace_tool, context, path=path, old_str="a", new_str="c", replace_all=True
    )

    assert refused.status == "error"
    assert "occurs 3 times, on lines 1, 3, 3." in refused.text
    assert replaced.content == f"Replaced 3 occurrences in {path}."
    assert (context.folders.workspace / "a.txt").read_text() == "c\nb\nc c\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("total = price + taxes", "The closest is line 2: total = price + tax"),
        ("    total = price + tax\n    return 1", "Line 2 has its first line: check the spaces"),
        ("nothing like it at all", "it must match exactly."),
        ("", "old_str is empty."),
    ],
)
async def test_str_replace_hints_at_what_was_meant(tmp_path: Path, old: str, hint: str) -> None:
    context = workspace(tmp_path, a_py="def f():\n\ttotal = price + tax\n")

    answer = await answer_of(str_replace_tool, context, path=f"{WORKSPACE}/a.py", old_str=old, new_str="x")

    assert answer.status == "error"
    assert hint in answer.text


async def test_str_replace_keeps_the_line_ends_of_the_file(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="one\r\ntwo\r\nthree\r\n")

    await answer_of(str_replace_tool, context, path=f"{WORKSPACE}/a.txt", old_str="one\ntwo", new_str="1\n2")

    assert (context.folders.workspace / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_str_replace_leaves_a_file_that_is_no_text_alone(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_bin=b"\xff\xfe one")

    answer = await answer_of(str_replace_tool, context, path=f"{WORKSPACE}/a.bin", old_str="one", new_str="1")

    assert "is not UTF-8 text" in answer.text
    assert (context.folders.workspace / "a.bin").read_bytes() == b"\xff\xfe one"


async def test_edits_made_side_by_side_are_all_kept(tmp_path: Path) -> None:
    context = workspace(tmp_path, a_txt="".join(f"<{number}>\n" for number in range(20)))
    path = f"{WORKSPACE}/a.txt"
    calls = [
        tool_call("str_replace", number, path=path, old_str=f"<{number}>", new_str=f"[{number}]")
        for number in range(20)
    ]

    await run_calls([str_replace_tool], context, *calls)

    expected = "".join(f"[{number}]\n" for number in range(20))
    assert (context.folders.workspace / "a.txt").read_text() == expected


async def test_wrong_arguments_are_explained_without_repeating_them(tmp_path: Path) -> None:
    answer = await answer_of(write_file_tool, run_context(tmp_path), content="secret " * 1000)

    assert answer.status == "error"
    assert "path: Field required" in answer.text
    assert "secret" not in answer.text
