"""`search_files`: which files are searched, what is found, and what is said of the others."""

from pathlib import Path
from typing import Any

import pytest
from support.documents import pdf
from support.loop_watch import LoopWatch
from support.sandboxes import run_context
from support.tool_calls import answer_of

from deerflow.tools.search_files import search_files_tool

WORKSPACE = "/mnt/user-data/workspace"


def context_with(tmp_path: Path, **files: str | bytes) -> Any:
    context = run_context(tmp_path)
    for name, content in files.items():
        path = context.folders.workspace / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return context


async def found(context: Any, query: str, *paths: str, **more: Any) -> str:
    answer = await answer_of(
        search_files_tool, context, query=query, paths=list(paths or [WORKSPACE]), **more
    )
    return str(answer.content)


async def test_passages_come_best_first_with_their_lines_and_headings(tmp_path: Path) -> None:
    context = context_with(
        tmp_path,
        a_md="# Boats\n\nThe ferry leaves at noon.\n",
        b_md="# Trains\n\nThe night train is late.\n\n## Fares\n\nA ticket to the coast costs nine euros.\n",
    )

    text = await found(context, "How much is a ticket to the sea?")

    assert text.startswith(f"Searched 2 files:\n- {WORKSPACE}/a.md\n- {WORKSPACE}/b.md\n")
    first = text.split("\n\n")[1]
    assert first.startswith(f"## {WORKSPACE}/b.md (lines 7-7; score ")
    assert first.endswith("; Trains > Fares)\n7: A ticket to the coast costs nine euros.")


async def test_a_chinese_question_finds_chinese_passages(tmp_path: Path) -> None:
    context = context_with(tmp_path, a_md="渡轮中午出发。\n", b_md="去海边的票价是九元。\n")

    text = await found(context, "到海边的车票多少钱？", max_results=1)

    assert "1: 去海边的票价是九元。" in text
    assert "渡轮" not in text


async def test_what_gitignore_names_is_left_out_and_other_files_say_why_not(tmp_path: Path) -> None:
    context = context_with(
        tmp_path,
        _gitignore="secrets/\n*.log\n",
        secrets__key_txt="key\n",
        x_log="key\n",
        d_bin=b"\0",
        a_md="A key.\n",
    )

    text = await found(context, "key")

    assert "Searched 2 files" in text  # a.md and .gitignore itself
    assert "secrets/key.txt" not in text
    assert "x.log" not in text
    assert f"Not searched: {WORKSPACE}/d.bin: it is not text" in text


async def test_a_table_is_found_row_by_row_and_a_document_by_page(tmp_path: Path) -> None:
    context = context_with(
        tmp_path,
        s_csv="city,price\nOslo,12\nBergen,9\n",
        r_pdf=pdf("Nothing here.", "The bridge opened in 1931."),
    )

    table = await found(context, "price in Bergen", max_results=1)
    document = await found(context, "When did the bridge open?", f"{WORKSPACE}/r.pdf", max_results=1)

    assert "lines 3-3" in table
    assert "3: Bergen,9" in table
    assert f"## {WORKSPACE}/r.pdf (page 2;" in document
    assert "The bridge opened in 1931." in document


@pytest.mark.parametrize("path", [f"{WORKSPACE}/none.md", "/etc"])
async def test_a_path_that_is_not_there_is_said(tmp_path: Path, path: str) -> None:
    text = await found(context_with(tmp_path), "anything", path)

    assert path in text


async def test_an_empty_folder_is_no_file_that_cannot_be_read(tmp_path: Path) -> None:
    text = await found(context_with(tmp_path, sub__a_md="A key.\n"), "key", f"{WORKSPACE}/sub", WORKSPACE)
    nothing = await found(run_context(tmp_path / "other"), "key")

    assert text.startswith("Searched 1 file:")
    assert nothing == f"There are no files in {WORKSPACE}."


async def test_a_large_folder_does_not_block_the_event_loop_and_the_answer_stays_short(
    tmp_path: Path,
) -> None:
    context = context_with(tmp_path)
    for number in range(400):
        (context.folders.workspace / f"{number}.md").write_text(f"Item {number}: {'word ' * 400}\n\n" * 4)

    async with LoopWatch():
        text = await found(context, "item 77 word", max_results=50)

    assert len(text) < 12_000
    assert "Searched 400 files." in text
