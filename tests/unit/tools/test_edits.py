"""`edit_files`: all changes or none, and errors that name the one that does not fit."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.loop_watch import LoopWatch
from support.sandboxes import FolderSandbox, run_context
from support.tool_calls import answer_of, run_calls, tool_call
from typing_extensions import override

from deerflow.context import RunContext
from deerflow.errors import SandboxError
from deerflow.tools.edits import edit_files_tool, edited_paths
from deerflow.tools.text import MAX_EDITED_BYTES

WORKSPACE = "/mnt/user-data/workspace"
POEM = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    made = run_context(tmp_path)
    put(made, "a.txt", POEM)
    put(made, "b.txt", "alpha\nbeta\n")
    return made


def put(context: RunContext, name: str, text: str) -> None:
    (context.folders.workspace / name).write_bytes(text.encode())


def text_of(context: RunContext, name: str) -> str:
    return (context.folders.workspace / name).read_bytes().decode()


def edit(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"path": f"{WORKSPACE}/{path}", "old_str": old, "new_str": new, **more}


async def call(context: RunContext, **arguments: Any) -> Any:
    return await answer_of(edit_files_tool, context, description="", **arguments)


async def test_edits_of_several_files_are_made_in_order(context: RunContext) -> None:
    answer = await call(
        context, edits=[edit("a.txt", "two", "2"), edit("b.txt", "beta", "b"), edit("a.txt", "2\n", "zwei\n")]
    )

    assert answer.status == "success"
    assert text_of(context, "a.txt") == POEM.replace("two", "zwei")
    assert text_of(context, "b.txt") == "alpha\nb\n"
    assert f"Changed {WORKSPACE}/a.txt" in answer.text


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([edit("a.txt", "two", "2"), edit("b.txt", "gamma", "g")], "Edit 2 of 2"),
        ([edit("a.txt", "two", "2"), edit("c.txt", "x", "y")], "c.txt"),
        ([edit("a.txt", "t", "T"), edit("b.txt", "beta", "b")], "Edit 1 of 2"),
        ([edit("b.txt", "beta", "b"), edit("a.txt", "", "x")], "Edit 2 of 2"),
        (
            [edit("b.txt", "beta", "b"), {"path": "/etc/passwd", "old_str": "root", "new_str": "me"}],
            "outside",
        ),
    ],
)
async def test_one_edit_that_does_not_fit_leaves_every_file_as_it_was(
    context: RunContext, edits: list[dict[str, Any]], said: str
) -> None:
    answer = await call(context, edits=edits)

    assert answer.status == "error"
    assert said in answer.text
    assert (text_of(context, "a.txt"), text_of(context, "b.txt")) == (POEM, "alpha\nbeta\n")


async def test_two_names_of_one_file_are_one_file(context: RunContext) -> None:
    await call(context, edits=[edit("a.txt", "one", "1"), edit("./a.txt", "two", "2")])

    assert text_of(context, "a.txt") == "1\n2\nthree\nfour\nfive\n"


async def test_a_write_that_fails_halfway_puts_back_what_was_written(tmp_path: Path) -> None:
    class FullDisk(FolderSandbox):
        @override
        async def update_file(self, path: str, content: bytes) -> None:
            if path.endswith("b.txt"):
                raise SandboxError("the disk is full")
            await super().update_file(path, content)

    context = run_context(tmp_path, sandbox=FullDisk(run_context(tmp_path).folders.user_data))
    put(context, "a.txt", POEM)
    put(context, "b.txt", "beta")

    answer = await call(context, edits=[edit("a.txt", "two", "2"), edit("b.txt", "beta", "b")])

    assert "the disk is full" in answer.text
    assert text_of(context, "a.txt") == POEM


async def test_a_call_that_is_cancelled_while_it_writes_writes_all_of_it(tmp_path: Path) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    class SlowDisk(FolderSandbox):
        @override
        async def update_file(self, path: str, content: bytes) -> None:
            if path.endswith("b.txt"):
                begun.set()
                await gate.wait()
            await super().update_file(path, content)

    context = run_context(tmp_path, sandbox=SlowDisk(run_context(tmp_path).folders.user_data))
    put(context, "a.txt", POEM)
    put(context, "b.txt", "beta")
    calling = asyncio.create_task(
        call(context, edits=[edit("a.txt", "two", "2"), edit("b.txt", "beta", "b")])
    )
    await begun.wait()

    calling.cancel()
    gate.set()
    await asyncio.wait([calling])

    assert calling.cancelled()
    assert (text_of(context, "a.txt"), text_of(context, "b.txt")) == (POEM.replace("two", "2"), "b")


async def test_calls_beside_each_other_do_not_lose_changes(context: RunContext) -> None:
    calls = [
        tool_call(
            "edit_files",
            n,
            description="",
            edits=[edit("a.txt", old, old.upper()), edit("b.txt", b, b.upper())],
        )
        for n, (old, b) in enumerate([("one", "alpha"), ("five", "beta")])
    ]

    async with asyncio.timeout(60):
        await run_calls([edit_files_tool], context, *calls)

    assert text_of(context, "a.txt") == "ONE\ntwo\nthree\nfour\nFIVE\n"
    assert text_of(context, "b.txt") == "ALPHA\nBETA\n"


async def test_a_patch_changes_and_makes_files(context: RunContext) -> None:
    patch = f"""\
diff --git a{WORKSPACE}/a.txt b{WORKSPACE}/a.txt
index 123..456 100644
--- a{WORKSPACE}/a.txt
+++ b{WORKSPACE}/a.txt
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
@@ -4,2 +4,3 @@ behind
 four
 five
+six

--- b.txt
+++ b.txt
@@ -2 +2 @@
-beta
+b
--- /dev/null
+++ new/c.txt
@@ -0,0 +1,2 @@
+made
+here
"""

    answer = await call(context, patch=patch)

    assert answer.status == "success", answer.text
    assert text_of(context, "a.txt") == "one\nzwei\nthree\nfour\nfive\nsix\n"
    assert text_of(context, "b.txt") == "alpha\nb\n"
    assert text_of(context, "new/c.txt") == "made\nhere\n"
    assert edited_paths({"patch": patch}) == [f"{WORKSPACE}/{n}" for n in ("a.txt", "b.txt", "new/c.txt")]


def hunk(path: str, header: str, *lines: str) -> str:
    return "\n".join([f"--- {path}", f"+++ {path}", header, *lines]) + "\n"


@pytest.mark.parametrize("header", ["@@ -1,2 +1,2 @@", "@@ -99,7 +99,1 @@", "@@ -3 +3 @@"])
async def test_wrong_line_numbers_do_not_matter_where_the_lines_are_there_once(
    context: RunContext, header: str
) -> None:
    await call(context, patch=hunk("a.txt", header, " four", "-five", "+5"))

    assert text_of(context, "a.txt") == POEM.replace("five", "5")


async def test_lines_that_are_there_twice_are_changed_where_the_numbers_say(context: RunContext) -> None:
    put(context, "a.txt", "x\ny\nx\ny\n")

    named = await call(context, patch=hunk("a.txt", "@@ -3,2 +3,2 @@", " x", "-y", "+z"))
    put(context, "d.txt", "x\ny\nx\ny\n")
    unclear = await call(context, patch=hunk("d.txt", "@@ -2,2 +2,2 @@", " x", "-y", "+z"))

    assert (named.status, text_of(context, "a.txt")) == ("success", "x\ny\nx\nz\n")
    assert "fits at several lines (1, 3)" in unclear.text
    assert text_of(context, "d.txt") == "x\ny\nx\ny\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_line_ends_stay_what_they_are(context: RunContext, newline: str) -> None:
    put(context, "a.txt", f"one{newline}two{newline}three")

    await call(context, patch=hunk("a.txt", "@@ -1,2 +1,3 @@", " one", "-two", "+2", "+and a half"))

    assert text_of(context, "a.txt") == newline.join(["one", "2", "and a half", "three"])


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        ("a\nb", ["-b", "\\ No newline at end of file", "+c"], "a\nc\n"),
        ("a\nb\n", ["-b", "+c", "\\ No newline at end of file"], "a\nc"),
        ("a\nb", ["-b", "\\ No newline at end of file", "+c", "\\ No newline at end of file"], "a\nc"),
    ],
)
async def test_a_missing_newline_at_the_end_comes_and_goes_as_the_patch_says(
    context: RunContext, before: str, lines: list[str], after: str
) -> None:
    put(context, "a.txt", before)

    answer = await call(context, patch=hunk("a.txt", "@@ -2 +2 @@", *lines))

    assert (answer.status, text_of(context, "a.txt")) == ("success", after)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (hunk("a.txt", "@@ -1,2 +1,2 @@", " one", "-zwei", "+2"), "Hunk 1 (@@ -1,2 +1,2 @@) of"),
        (
            hunk("a.txt", "@@ -1,2 +1,2 @@", " one", "-zwei", "+2"),
            "'zwei' at line 2, where the file has 'two'",
        ),
        (hunk("a.txt", "@@ -1 +1 @@", "-one", "+1", "@@ -4 +4 @@", "-vier", "+4"), "Hunk 2"),
        (hunk("b.txt", "@@ -1 +1 @@", "-alpha", "+a") + hunk("a.txt", "@@ -1 +1 @@", "-nope", "+1"), "a.txt"),
        (hunk("a.txt", "@@ 1 @@", "-one", "+1"), "no hunk header"),
        (hunk("a.txt", "@@ -1 +1 @@", "one", "+1"), "starts with none of"),
        (hunk("a.txt", "@@ -1 +1 @@", " one"), "changes nothing"),
        ("@@ -1 +1 @@\n-one\n+1\n", "starts with a hunk"),
        ("not a patch", "no part of a unified diff"),
        ("--- a.txt\n+++ a.txt\n", "no hunks"),
        ("--- a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "would delete"),
        ("--- a.txt\n+++ z.txt\n@@ -1 +1 @@\n-one\n+1\n", "would rename"),
        ("--- /dev/null\n+++ a.txt\n@@ -0,0 +1 @@\n+one\n", "is there already"),
        (hunk("a.txt", "@@ -1 +1 @@", "-one", "+1") * 2, "twice"),
        (hunk("/etc/passwd", "@@ -1 +1 @@", "-root", "+me"), "outside"),
        (hunk("../../../../etc/passwd", "@@ -1 +1 @@", "-root", "+me"), "outside"),
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing_and_says_which_hunk(
    context: RunContext, patch: str, said: str
) -> None:
    answer = await call(context, patch=patch)

    assert answer.status == "error"
    assert said in answer.text
    assert (text_of(context, "a.txt"), text_of(context, "b.txt")) == (POEM, "alpha\nbeta\n")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"edits": [], "patch": ""},
        {"edits": [edit("a.txt", "one", "1")], "patch": "x"},
        {"edits": [edit("a.txt", "one", "1")] * 201},
        {"patch": "x" * 400_001},
        {"edits": [{"path": "", "old_str": "a", "new_str": "b"}]},
        {"edits": "one"},
    ],
)
async def test_what_is_no_set_of_edits_is_refused(context: RunContext, arguments: dict[str, Any]) -> None:
    answer = await call(context, **arguments)

    assert answer.status == "error"
    assert "The tool was not called" in answer.text
    assert edited_paths(arguments) == []


@pytest.mark.parametrize(
    "patch",
    [
        hunk("same.txt", "@@ -9999999 +1 @@", *["-x"] * 20_000, "+y"),
        hunk("same.txt", "@@ -1 +1 @@", *["-x"] * 20_000, "-z", "+y"),
        hunk("same.txt", *["@@ -9999999 +1 @@", "-x", "-x", "-y", "+z"] * 400),
        "".join(hunk(f"{n}.txt", "@@ -1 +1 @@", "-x", "+y") for n in range(400)) + "--- a\n+++ a\n" * 20_000,
    ],
    ids=["everywhere", "nowhere", "many hunks", "many files"],
)
async def test_a_hostile_patch_is_refused_without_holding_up_others(context: RunContext, patch: str) -> None:
    put(context, "same.txt", "x\n" * 100_000)

    async with LoopWatch():
        answer = await call(context, patch=patch)

    assert answer.status == "error"


async def test_a_file_too_large_to_edit_is_refused_unread(context: RunContext) -> None:
    with (context.folders.workspace / "big.txt").open("wb") as file:
        file.truncate(MAX_EDITED_BYTES + 1)

    answer = await call(context, edits=[edit("big.txt", "a", "b")])
    patched = await call(context, patch=hunk("long.txt", "@@ -1 +1 @@", "-x", "+y"))

    assert (answer.status, patched.status) == ("error", "error")
    assert "big.txt has" in answer.text
