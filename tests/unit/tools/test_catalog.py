"""Which tools an agent gets."""

import logging
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

from deerflow.config import ModelSettings, Settings, ToolSettings
from deerflow.tools import bash_tool, get_available_tools

FILES = ["ls", "read_file", "glob", "grep", "write_file", "str_replace"]
BUILT_IN = ["present_files", "ask_clarification"]


@tool
def task(prompt: str) -> str:
    """Delegate."""
    return prompt


@tool("bash")
def other_bash(command: str) -> str:
    """Run elsewhere."""
    return command


def greeter(entry: ToolSettings) -> BaseTool:
    """Make a tool that knows its own keys."""
    greeting = (entry.model_extra or {}).get("greeting", "")

    @tool("greeter")
    def greet() -> str:
        """Greet."""
        return str(greeting)

    return greet


not_a_tool = 7


def names(settings: Settings, **options: Any) -> list[str]:
    return [tool.name for tool in get_available_tools(settings, **options)]


def entry(name: str, use: str, group: str = "g", **keys: Any) -> ToolSettings:
    return ToolSettings(name=name, group=group, use=use, **keys)


def model(*, supports_vision: bool) -> ModelSettings:
    return ModelSettings(name="m", use="a:B", model="m", supports_vision=supports_vision)


def test_without_a_section_there_are_the_default_tools() -> None:
    assert names(Settings()) == [*FILES, "bash", *BUILT_IN]


def test_an_empty_section_leaves_the_built_in_tools() -> None:
    assert names(Settings(tools=())) == BUILT_IN


def test_groups_narrow_the_tools_but_not_the_built_in_ones() -> None:
    assert names(Settings(), groups=["file:read"]) == [*FILES[:4], *BUILT_IN]
    assert names(Settings(), groups=[]) == BUILT_IN


def test_a_model_that_sees_gets_view_image() -> None:
    assert "view_image" in names(Settings(), model=model(supports_vision=True))
    assert "view_image" not in names(Settings(), model=model(supports_vision=False))


def test_task_is_there_when_subagents_are_on() -> None:
    assert "task" in names(Settings(), subagent_enabled=True, task_tool=task)
    assert "task" not in names(Settings(), subagent_enabled=False, task_tool=task)


def test_the_section_names_tools_as_older_files_do() -> None:
    settings = Settings(tools=(entry("bash", "deerflow.sandbox.tools:bash_tool", "bash"),))

    tools = get_available_tools(settings)

    assert tools[0] is bash_tool
    assert names(settings, groups=["web"]) == BUILT_IN


def test_a_factory_gets_the_entry_with_its_keys() -> None:
    settings = Settings(tools=(entry("hello", f"{__name__}:greeter", greeting="hi"),))

    tool = get_available_tools(settings)[0]

    assert (tool.name, tool.invoke({})) == ("hello", "hi")


def test_what_cannot_be_used_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(
        tools=(
            entry("search", "no_such_package.tools:web_search_tool"),
            entry("seven", f"{__name__}:not_a_tool"),
            entry("shape", "nonsense"),
            entry("ls", "deerflow.tools.files:ls_tool"),
        )
    )

    with caplog.at_level(logging.WARNING):
        assert names(settings) == ["ls", *BUILT_IN]

    assert "no_such_package" in caplog.text
    assert "is not a tool" in caplog.text


def test_of_two_tools_with_one_name_the_first_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tools = get_available_tools(Settings(), extra=[other_bash])

    assert [tool for tool in tools if tool.name == "bash"] == [bash_tool]
    assert "tool bash is there twice" in caplog.text
