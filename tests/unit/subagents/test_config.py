"""Types, statuses and the registry."""

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from support.lead import NewLead, scripted_models
from support.model_server import Request, ScriptedModel, call, calls, text

from deerflow.config import Settings, SubagentsSettings
from deerflow.config.agents import CustomSubagent, SubagentOverride
from deerflow.domain import RunOptions
from deerflow.errors import ConflictError, NotFoundError
from deerflow.subagents import (
    MarkdownSubagents,
    SubagentConfig,
    SubagentRegistry,
    SubagentResult,
    SubagentStatus,
)
from deerflow.subagents.builder import allowed_tools
from deerflow.tools import get_available_tools

ALLOWED = {
    ("pending", "running"),
    ("pending", "cancelled"),
    ("pending", "failed"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "timed_out"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(SubagentStatus, SubagentStatus)))
def test_a_status_goes_only_forward(before: SubagentStatus, after: SubagentStatus) -> None:
    result = SubagentResult("t", "trace", status=before)

    if (before, after) in ALLOWED:
        assert result.becoming(after, result="x").result == "x"
    else:
        with pytest.raises(ConflictError, match=f"is {before} and cannot become {after}"):
            result.becoming(after)


def test_a_config_starts_from_the_agreed_defaults() -> None:
    config = SubagentConfig(name="x", description="d", system_prompt="p")

    assert (config.tools, config.disallowed_tools, config.model) == (None, ("task",), "inherit")
    assert (config.max_turns, config.timeout_seconds) == (50, 900)


def test_the_built_in_types_are_there_with_their_limits() -> None:
    registry = SubagentRegistry(SubagentsSettings())

    assert [(c.name, c.max_turns, c.timeout_seconds) for c in registry] == [
        ("general-purpose", 150, 900),
        ("bash", 60, 900),
    ]


def test_an_override_for_one_agent_takes_precedence_over_that_for_all() -> None:
    registry = SubagentRegistry(
        SubagentsSettings(
            timeout_seconds=100,
            max_turns=7,
            agents={"bash": SubagentOverride(timeout_seconds=5, model="small", skills=("a",))},
        )
    )
    general, bash = registry.get("general-purpose"), registry.get("bash")

    assert (general.timeout_seconds, general.max_turns, general.model) == (100, 7, "inherit")
    assert (bash.timeout_seconds, bash.max_turns, bash.model, bash.skills) == (5, 7, "small", ("a",))


def test_a_custom_type_keeps_its_own_values() -> None:
    said = CustomSubagent(description="d", system_prompt="p", max_turns=3, tools=("ls",))
    unsaid = CustomSubagent(description="d", system_prompt="p", disallowed_tools=None)
    registry = SubagentRegistry(
        SubagentsSettings(timeout_seconds=100, max_turns=7, custom_agents={"one": said, "two": unsaid})
    )

    assert (registry.get("one").max_turns, registry.get("one").timeout_seconds) == (3, 100)
    assert (registry.get("two").max_turns, registry.get("two").disallowed_tools) == (7, ())


@pytest.mark.parametrize("spelling", ["general-purpose", "general_purpose", " General Purpose "])
def test_a_name_is_found_however_models_spell_it(spelling: str) -> None:
    assert SubagentRegistry(SubagentsSettings()).get(spelling).name == "general-purpose"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    registry = SubagentRegistry(SubagentsSettings())

    with pytest.raises(NotFoundError, match="'reviewer' not found; there are: general-purpose, bash"):
        registry.get("reviewer")
    with pytest.raises(NotFoundError, match=r"'bash' not found; there are: general-purpose$"):
        registry.get("bash", has_shell=False)


def test_an_override_of_an_unknown_type_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        SubagentRegistry(SubagentsSettings(agents={"bahs": SubagentOverride(max_turns=1)}))

    assert "subagents.agents.bahs names no sub-agent" in caplog.text


@pytest.mark.parametrize("for_all", [None, False, True])
def test_thinking_of_one_agent_takes_precedence_over_that_for_all(
    tmp_path: Path, for_all: bool | None
) -> None:
    (tmp_path / "quick.md").write_text("---\ndescription: d\nthinking: false\n---\nbody")
    (tmp_path / "plain.md").write_text("---\ndescription: d\n---\nbody")
    custom = {
        name: CustomSubagent(description="d", system_prompt="p", thinking=said)
        for name, said in (("deep", True), ("own", None))
    }
    overrides = {"bash": SubagentOverride(thinking=False), "own": SubagentOverride(model="small")}
    settings = SubagentsSettings(thinking=for_all, custom_agents=custom, agents=overrides)

    registry = SubagentRegistry(settings, MarkdownSubagents([tmp_path]))

    assert {config.name: config.thinking for config in registry} == {
        "general-purpose": for_all,
        "bash": False,
        "quick": False,
        "plain": for_all,
        "deep": True,
        "own": for_all,
    }


def thinks(request: Request) -> tuple[Any, Any]:
    return request.body.get("thinking", {}).get("type"), request.body.get("reasoning_effort")


@pytest.mark.parametrize("is_lead_thinking", [True, False])
async def test_sub_agents_think_as_the_settings_say_and_the_lead_as_its_run_says(
    new_lead: NewLead, model: ScriptedModel, is_lead_thinking: bool
) -> None:
    custom = CustomSubagent(description="d", system_prompt="p", thinking=True)
    lead = new_lead(
        settings=Settings(subagents=SubagentsSettings(thinking=False, custom_agents={"deep": custom})),
        options=RunOptions(subagent_enabled=True, thinking_enabled=is_lead_thinking, reasoning_effort="high"),
        models=scripted_models(
            model,
            supports_thinking=True,
            supports_reasoning_effort=True,
            when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled"}}},
        ),
    )
    model.on("Look.", text("Found."))
    model.on("Ponder.", text("Found."))
    tasks = calls(
        call("task", agent="general-purpose", task="Look."), call("task", agent="deep", task="Ponder.")
    )
    model.will_say(tasks, text("Done."))

    await lead.ask("Go.")

    asked = {request.asked: thinks(request) for request in model.requests}
    assert asked["Go."] == ("enabled" if is_lead_thinking else "disabled", "high")
    assert asked["Look."] == ("disabled", None)
    assert asked["Ponder."] == ("enabled", "high")


def names(config: SubagentConfig) -> set[str]:
    return {tool.name for tool in allowed_tools(config, get_available_tools(Settings()))}


def test_without_bash_there_is_no_python_tool() -> None:
    denied = SubagentConfig("reader", "reads", "You read.", disallowed_tools=("bash",))
    named = SubagentConfig(
        "reader", "reads", "You read.", tools=("bash", "python"), disallowed_tools=("bash",)
    )
    free = SubagentConfig("worker", "works", "You work.")

    assert not {"bash", "python"} & names(denied)
    assert names(named) == set()
    assert {"bash", "python", "edit_files"} <= names(free)
