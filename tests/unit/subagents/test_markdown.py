"""Sub-agents from Markdown files, in the form that Claude Code's users have."""

import logging
from pathlib import Path

import pytest
from support.lead import Lead
from support.model_server import ScriptedModel, call, text

from deerflow.config import SubagentsSettings
from deerflow.config.agents import CustomSubagent, SubagentOverride
from deerflow.lead import LeadAgents, LeadDependencies
from deerflow.subagents import MarkdownSubagents, SubagentRegistry
from deerflow.subagents.markdown import read_subagent

REVIEWER = """\
---
name: code-reviewer
description: Reviews code.
  Use after every change.
tools: Read, Grep, Bash(git diff:*, git log:*), Edit
model: sonnet
color: purple
---

You review code.
"""


def write(folder: Path, name: str, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(content)
    return file


def test_a_file_of_claude_code_is_understood(tmp_path: Path) -> None:
    agent = read_subagent(write(tmp_path, "x.md", REVIEWER))

    assert (agent.name, agent.description) == ("code-reviewer", "Reviews code. Use after every change.")
    assert agent.tools == ("read_file", "grep", "bash", "str_replace")
    assert (agent.model, agent.system_prompt) == ("sonnet", "You review code.")


def test_lists_and_our_own_names_are_understood_too(tmp_path: Path) -> None:
    content = (
        "---\ndescription: d\ntools: [ls, read_file]\ndisallowedTools: write_file\nmaxTurns: 4\n---\nDo it."
    )

    agent = read_subagent(write(tmp_path, "my_reader.md", content))

    assert (agent.name, agent.tools, agent.disallowed_tools) == (
        "my_reader",
        ("ls", "read_file"),
        ("write_file",),
    )
    assert agent.max_turns == 4


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("no front matter", "no front matter"),
        ("---\nname: a\n---\nbody", "description"),
        ("---\nname: a b\ndescription: d\n---\nbody", "name"),
        ("---\nname: a\ndescription: d\n---\n", "system_prompt"),
        ("---\nname: a\ndescription: d\ntools: {a: 1}\n---\nbody", "tools"),
        ("---\nname: a\ndescription: d\nmax_turns: none\n---\nbody", "max_turns"),
        ("---\nname: [\n---\nbody", "no YAML"),
        ("---\nname: a\ndescription: d\n---\n" + "x" * 300_000, "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_left_out_with_the_reason(
    tmp_path: Path, content: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "bad.md", content)
    write(tmp_path, "good.md", REVIEWER)

    with caplog.at_level(logging.WARNING):
        found = MarkdownSubagents([tmp_path]).all()

    assert [agent.name for agent in found] == ["code-reviewer"]
    assert problem in caplog.text


def test_settings_take_precedence_over_files_and_files_over_builtins(tmp_path: Path) -> None:
    write(tmp_path / "home", "one.md", "---\ndescription: from home\n---\nbody")
    write(tmp_path / "home", "two.md", "---\ndescription: from home\n---\nbody")
    write(tmp_path / "project", "one.md", "---\ndescription: from project\nmax_turns: 9\n---\nbody")
    write(tmp_path / "project", "bash.md", "---\ndescription: another bash\n---\nbody")
    settings = SubagentsSettings(
        timeout_seconds=100,
        custom_agents={"two": CustomSubagent(description="from settings", system_prompt="p")},
        agents={"one": SubagentOverride(timeout_seconds=5)},
    )

    registry = SubagentRegistry(settings, MarkdownSubagents([tmp_path / "home", tmp_path / "project"]))

    assert registry.get("one").description == "from project"
    assert (registry.get("one").max_turns, registry.get("one").timeout_seconds) == (9, 5)
    assert registry.get("two").description == "from settings"
    assert registry.get("bash").description == "another bash"
    assert "task" in registry.get("one").disallowed_tools


def test_links_are_not_followed_and_readmes_are_no_sub_agents(tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere", "x.md", REVIEWER)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "link.md").symlink_to(secret)
    write(tmp_path / "agents", "README.md", "# About")

    assert MarkdownSubagents([tmp_path / "agents", tmp_path / "nowhere"]).all() == ()


def test_a_new_file_is_found_at_the_next_scan(tmp_path: Path) -> None:
    now = 0.0
    registry = SubagentRegistry(SubagentsSettings(), MarkdownSubagents([tmp_path], clock=lambda: now))
    write(tmp_path, "x.md", REVIEWER)

    before = [config.name for config in registry]
    now = 3.0

    assert before == ["general-purpose", "bash"]
    assert [config.name for config in registry] == ["general-purpose", "bash", "code-reviewer"]


async def test_the_lead_is_offered_it_and_an_unknown_model_is_replaced_by_the_runs(
    lead: Lead, model: ScriptedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "agents", "x.md", REVIEWER)
    rooms = LeadDependencies(
        settings=lead.settings,
        models=lead.models,
        executor=lead.executor,
        checkpointer=lead.checkpointer,
        agent_folders=[tmp_path / "agents"],
    )
    lead.agents = LeadAgents(rooms)
    model.on("Review it.", text("Fine."))
    review = call("task", agent="code-reviewer", task="Review it.")
    model.will_say(review, review, text("Done."))

    messages = await lead.ask("Go.")

    assert "- code-reviewer: Reviews code. Use after every change." in model.requests[0].system
    assert [each.args for each in caplog.records if "names model" in each.msg] == [
        ("code-reviewer", "sonnet")
    ]
    assert model.requests[1].tools == ["read_file", "grep", "str_replace", "bash"]
    assert model.requests[1].body["model"] == "scripted"
    assert messages[-2].text == "Task Succeeded. Result: Fine."


def test_a_file_removed_during_the_scan_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.md", REVIEWER)
    listed = [*tmp_path.glob("*.md"), tmp_path / "gone.md"]
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter(listed))

    assert [each.name for each in MarkdownSubagents([tmp_path]).all()] == ["code-reviewer"]
