"""The system prompt, as the model reads it. Run with UPDATE_SNAPSHOTS=1 after a change you mean."""

import os
import re
from pathlib import Path

import pytest

from deerflow.agents.prompts import skills_section
from deerflow.config import SubagentsSettings
from deerflow.lead.prompt import lead_prompt
from deerflow.skills import Skill
from deerflow.subagents import SubagentRegistry

SNAPSHOTS = Path(__file__).parent / "snapshots"
SKILLS = (
    Skill(
        "deep-research", "Researches a topic.", "public", "/mnt/skills/public/deep-research/SKILL.md", Path()
    ),
)
SUBAGENTS = tuple(SubagentRegistry(SubagentsSettings()))


def matches_snapshot(name: str, text: str) -> bool:
    file = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + "\n")
    return file.read_text() == text + "\n"


def test_the_plain_prompt_is_as_agreed_and_short() -> None:
    prompt = lead_prompt()

    assert matches_snapshot("lead_prompt.md", prompt)
    assert len(prompt) < 6000


def test_the_prompt_with_skills_and_sub_agents_is_as_agreed() -> None:
    prompt = lead_prompt(skills=skills_section(SKILLS), subagents=SUBAGENTS, subagent_limit=3)

    assert matches_snapshot("lead_prompt_with_subagents.md", prompt)


def test_the_prompts_of_the_built_in_sub_agents_are_as_agreed() -> None:
    for config in SUBAGENTS:
        assert matches_snapshot(f"{config.name}.md", config.system_prompt)


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_every_part_names_the_same_limit(limit: int) -> None:
    prompt = lead_prompt(subagents=SUBAGENTS, subagent_limit=limit)

    named = re.findall(
        r'limit="(\d+)"|most\s+(\d+) task calls|beyond (\d+)|than (\d+) parts|start (\d+)', prompt
    )
    numbers = [number for group in named for number in group if number]
    assert len(numbers) >= 6
    assert set(numbers) == {str(limit)}


def test_without_sub_agents_nothing_speaks_of_them() -> None:
    prompt = lead_prompt(skills=skills_section(SKILLS))

    assert "task call" not in prompt
    assert "ub-agent" not in prompt


def test_nothing_in_the_prompt_changes_with_time() -> None:
    assert (
        re.search(
            r"\b20\d\d\b|\d\d:\d\d",
            lead_prompt(skills=skills_section(SKILLS), subagents=SUBAGENTS, subagent_limit=3),
        )
        is None
    )


def test_all_sections_are_there_in_order() -> None:
    prompt = lead_prompt(skills=skills_section(SKILLS), subagents=SUBAGENTS, subagent_limit=3)

    assert re.findall(r"^<([a-z_]+)[ >]", prompt, re.MULTILINE) == [
        "role", "thinking_style", "clarification_system", "skills", "subagent_system", "working_directory",
        "response_style", "citations", "critical_reminders",
    ]  # fmt: skip
    for kind in (
        "missing_info",
        "ambiguous_requirement",
        "approach_choice",
        "risk_confirmation",
        "suggestion",
    ):
        assert kind in prompt
