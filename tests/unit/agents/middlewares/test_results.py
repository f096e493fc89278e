"""What happens to tool results and to writes: long ones, unread files."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from deerflow.agents.middlewares.read_before_write import MARK, last_mark, refusal_of
from deerflow.agents.middlewares.tool_output import fallback, file_name, synopsis
from deerflow.config import ToolOutputSettings
from deerflow.sandbox.base import content_version

PATH = "/mnt/user-data/workspace/a.txt"


def seen(content: bytes, path: str = PATH) -> ToolMessage:
    return ToolMessage(
        "ok", tool_call_id="1", additional_kwargs={MARK: {"path": path, "hash": content_version(content)}}
    )


def test_a_synopsis_has_start_end_size_and_the_way_to_the_rest() -> None:
    text = "START\n" + "x" * 20_000 + "\nEND"

    short = synopsis(text, "/mnt/user-data/outputs/.tool-results/bash-1.txt", ToolOutputSettings())

    assert len(short) < 3500
    assert "START" in short
    assert short.endswith("END")
    assert "20010 characters in 3 lines" in short
    assert "/mnt/user-data/outputs/.tool-results/bash-1.txt" in short


def test_previews_may_be_switched_off() -> None:
    settings = ToolOutputSettings(preview_head_chars=0, preview_tail_chars=0, fallback_tail_chars=0)

    assert "xxx" not in synopsis("x" * 50, "/p", settings)
    assert fallback("x" * 40_000, settings).rstrip().endswith("ask for less at once]")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "", "工具", "..", "x" * 300, "a/b\\c\0"])
def test_a_results_file_name_never_leaves_its_folder(name: str) -> None:
    made = file_name(ToolMessage("x", tool_call_id=name, name=name))

    assert "/" not in made
    assert "\0" not in made
    assert not made.startswith(".")
    assert len(made) < 200


def test_two_results_never_share_a_file() -> None:
    message = ToolMessage("x", tool_call_id="1", name="bash")

    assert file_name(message) != file_name(message)


@pytest.mark.parametrize(
    ("tool", "arguments", "present", "words"),
    [
        ("write_file", {"path": PATH}, None, None),
        ("write_file", {"path": PATH}, b"known", None),
        ("write_file", {"path": PATH}, b"other", "has changed"),
        ("write_file", {"path": PATH, "append": True}, b"other", None),
        ("str_replace", {"path": PATH}, b"known", None),
        ("str_replace", {"path": PATH}, b"other", "has changed"),
        ("write_file", {"path": "/mnt/user-data/workspace/b.txt"}, b"x", "have not read"),
    ],
)
def test_a_write_needs_the_content_that_the_agent_last_saw(
    tool: str, arguments: dict[str, Any], present: bytes | None, words: str | None
) -> None:
    messages: list[AnyMessage] = [HumanMessage("go"), AIMessage(""), seen(b"old"), seen(b"known")]

    refusal = refusal_of(tool, arguments, None if present is None else content_version(present), messages)

    assert refusal is None if words is None else words in (refusal or "")


def test_edits_of_one_file_side_by_side_are_let_through() -> None:
    calls = [{"name": "str_replace", "args": {"path": PATH, "old_str": c}, "id": c} for c in "ab"]
    messages: list[AnyMessage] = [seen(b"known"), AIMessage("", tool_calls=calls)]

    assert refusal_of("str_replace", {"path": PATH}, content_version(b"first edit done"), messages) is None
    assert refusal_of("write_file", {"path": PATH}, content_version(b"first edit done"), messages) is not None


def test_marks_that_are_no_marks_are_ignored() -> None:
    broken = ToolMessage("x", tool_call_id="1", additional_kwargs={MARK: {"path": PATH, "hash": 7}})

    assert last_mark([broken], PATH) is None
    assert last_mark([ToolMessage("x", tool_call_id="1", additional_kwargs={MARK: "?"})], PATH) is None
