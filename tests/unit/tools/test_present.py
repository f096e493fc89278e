"""`present_files`: only finished, regular files of the outputs folder reach the user."""

import os
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import AgentState
from langchain_core.messages import ToolMessage
from support.sandboxes import run_context
from support.tool_calls import answer_of, run_calls, tool_call

from deerflow.context import RunContext
from deerflow.tools.present import present_files_tool

OUTPUTS = "/mnt/user-data/outputs"


class State(AgentState[Any]):
    artifacts: Annotated[list[str], lambda before, after: before + after]


async def present(context: RunContext, *paths: str) -> tuple[list[str], ToolMessage]:
    call = tool_call("present_files", filepaths=list(paths))
    state, _ = await run_calls([present_files_tool], context, call, state_schema=State)
    message = next(message for message in state["messages"] if isinstance(message, ToolMessage))
    return state.get("artifacts", []), message


async def test_files_become_artifacts(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    (context.folders.outputs / "sub").mkdir()
    (context.folders.outputs / "sub" / "a.md").write_text("a")

    artifacts, message = await present(context, f"{OUTPUTS}/sub/a.md", f"{OUTPUTS}/sub/../sub/a.md")

    assert artifacts == [f"{OUTPUTS}/sub/a.md"]
    assert (message.content, message.status) == (f"The user can now see {OUTPUTS}/sub/a.md.", "success")


async def test_what_cannot_be_shown_is_named_beside_what_can(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    (context.folders.outputs / "a.md").write_text("a")

    artifacts, message = await present(context, f"{OUTPUTS}/a.md", f"{OUTPUTS}/b.md")

    assert artifacts == [f"{OUTPUTS}/a.md"]
    assert f"{OUTPUTS}/b.md was not shown: there is no such file" in message.text


async def test_everything_else_is_refused(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    outputs = context.folders.outputs
    (tmp_path / "secret").write_text("s")
    (outputs / "out").symlink_to(tmp_path / "secret")
    (outputs / "loop").symlink_to(outputs / "loop")
    (outputs / "folder").mkdir()
    os.mkfifo(outputs / "pipe")
    refused = [
        f"{OUTPUTS}/out",
        f"{OUTPUTS}/loop",
        f"{OUTPUTS}/folder",
        f"{OUTPUTS}/pipe",
        f"{OUTPUTS}/../../../secret",
        f"{OUTPUTS}",
        f"{OUTPUTS}-else/a",
        "/mnt/user-data/workspace/a.md",
        "/etc/passwd",
        "report.md",
    ]

    for path in refused:
        artifacts, message = await present(context, path)

        assert (artifacts, message.status) == ([], "error"), path
        assert "was not shown" in message.text


async def test_a_link_does_not_tell_whether_the_host_has_a_file(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    (tmp_path / "secret").write_text("s")
    (context.folders.outputs / "a").symlink_to(tmp_path / "secret")
    (context.folders.outputs / "b").symlink_to(tmp_path / "nothing")

    there, absent = [(await present(context, f"{OUTPUTS}/{name}"))[1].text for name in "ab"]

    assert there.replace("/a", "/b") == absent


async def test_no_paths_and_too_many_are_explained(tmp_path: Path) -> None:
    none = await answer_of(present_files_tool, run_context(tmp_path), filepaths=[])
    many = await answer_of(present_files_tool, run_context(tmp_path), filepaths=["/a"] * 101)

    assert (none.status, many.status) == ("error", "error")
    assert "at least 1 item" in none.text
    assert "at most 100 items" in many.text
