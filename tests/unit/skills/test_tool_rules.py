"""Which tool calls the `allowed-tools` of skills permit."""

from typing import Any

import pytest

from deerflow.skills.tool_rules import ToolRules, simple_commands

GIT = ("bash(git:*)", "bash(head)", "bash(npm run test:*)")


def permits(entries: tuple[str, ...], tool: str, **args: Any) -> bool:
    return ToolRules(entries, skills_path="/mnt/skills").permits(tool, args)


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git status", ["git status"]),
        ("\ngit  status\n git log\n", ["git status", "git log"]),
        ("git log | head && ls; pwd || true &", ["git log", "head", "ls", "pwd", "true"]),
        ("git commit -m 'a; b' \"c | $D\" e\\;f", ["git commit -m 'a; b' \"c | $D\" e\\;f"]),
        ("git log 2>&1 >/dev/null", ["git log"]),
        ("git log $(rm x)", None),
        ('git log "$(rm x)"', None),
        ('git log "`rm x`"', None),
        ("git log `rm x`", None),
        ("git log > ~/.bashrc", None),
        ("git log >/dev/nullx", None),
        ("git apply < x", None),
        ("git <(ls)", None),
        ("git $'a'", None),
        ("git 'open", None),
        ('git "open', None),
        ("git \\", None),
    ],
)
def test_a_line_is_split_into_its_commands(line: str, commands: list[str] | None) -> None:
    assert simple_commands(line) == commands


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("git status", True),
        ("git", True),
        ("git log -3 | head", True),
        ("npm run test -- -v", True),
        ("gitk", False),
        ("head -5", False),
        ("npm run build", False),
        ("git status; rm -rf x", False),
        ("git status\nrm -rf x", False),
        ("X=1 git status", False),
        ("(git status)", False),
        ("", False),
        (7, False),
    ],
)
def test_each_command_of_a_line_must_fit_a_pattern(command: object, is_allowed: bool) -> None:
    assert permits(GIT, "bash", command=command) is is_allowed
    assert not permits(GIT, "python", code="import os")


@pytest.mark.parametrize(
    ("entries", "tool", "args", "is_allowed"),
    [
        (("read_file",), "read_file", {"path": "/etc/x"}, True),
        (("read_file",), "view_image", {"image_path": "/x.png"}, True),
        (("read_file",), "bash", {"command": "ls"}, False),
        (("bash", "python"), "python", {"code": "1"}, True),
        (("memory_*",), "memory_add", {}, True),
        (("task",), "task_result", {}, True),
        (("mcp__git__log",), "git_log", {}, True),
        (("mcp__git__log",), "log", {}, True),
        (("mcp__git",), "git_log", {}, True),
        (("read_file(/mnt/user-data/*)",), "read_file", {"path": "/mnt/user-data/a/b"}, True),
        (("read_file(/mnt/user-data/*)",), "read_file", {"path": "/mnt/user-data/../x"}, False),
        (("web_fetch(domain:example.com)",), "web_fetch", {"url": "https://www.example.com/a"}, True),
        (("web_fetch(domain:example.com)",), "web_fetch", {"url": "https://example.com.evil.org"}, False),
        ((), "ask_clarification", {}, True),
        ((), "present_files", {}, True),
        ((), "read_file", {"path": "/mnt/skills/public/a/SKILL.md"}, True),
        ((), "read_file", {"path": "/mnt/skills/../user-data/x"}, False),
        ((), "read_file", {"path": "/mnt/user-data/outputs/.tool-results/bash-1.txt"}, True),
        ((), "write_file", {"path": "/mnt/skills/x"}, False),
        ((), "read_file", {}, False),
        (("(",), "read_file", {"path": "/x"}, False),
    ],
)
def test_a_call_is_allowed_by_name_and_pattern(
    entries: tuple[str, ...], tool: str, args: dict[str, Any], is_allowed: bool
) -> None:
    assert permits(entries, tool, **args) is is_allowed
