"""Which tools an agent gets."""

import logging
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from support.sandboxes import run_context
from support.tool_calls import answer_of

from deerflow.config import ModelSettings, Settings, ToolSettings
from deerflow.plugins import find_plugins
from deerflow.tools import bash_tool, get_available_tools, glob_tool
from deerflow.tools.catalog import SANDBOX_TOOLS, tool_groups, tool_problems
from deerflow.tools.define import PlainTool
from deerflow.tools.web import image_search_tool, web_fetch_tool, web_search_tool

FILES = ["ls", "read_file", "glob", "grep", "search_files", "write_file", "str_replace", "edit_files"]
SHELLS = ["bash", "python"]
BUILT_IN = ["present_files", "ask_clarification"]
WORKSPACE = "/mnt/user-data/workspace"


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


def entry(name: str, use: str | None = None, group: str | None = "g", **keys: Any) -> ToolSettings:
    return ToolSettings(name=name, group=group, use=use, **keys)


def models(*, supports_vision: bool) -> dict[str, ModelSettings]:
    return {"m": ModelSettings(name="m", use="a:B", model="m", supports_vision=supports_vision)}


def test_without_a_section_there_are_the_default_tools() -> None:
    assert names(Settings()) == [*FILES, *SHELLS, *BUILT_IN]


def test_a_section_adds_to_the_sandbox_tools() -> None:
    added = entry("hello", f"{__name__}:greeter")

    assert names(Settings(tools=())) == [*FILES, *SHELLS, *BUILT_IN]
    assert names(Settings(tools=(added,))) == [*FILES, *SHELLS, "hello", *BUILT_IN]


def test_an_entry_overrides_the_sandbox_tool_of_its_name() -> None:
    settings = Settings(
        tools=(entry("bash", f"{__name__}:other_bash", group=None), entry("glob", max_results=2, group=None))
    )

    tools = {tool.name: tool for tool in get_available_tools(settings)}

    assert list(tools) == [*FILES, *SHELLS, *BUILT_IN]
    assert tools["bash"] is other_bash
    assert tools["glob"].args["max_results"]["default"] == 2
    assert names(settings, groups=["bash"]) == [*SHELLS, *BUILT_IN]


def test_an_override_that_cannot_be_loaded_leaves_no_tool_of_that_name() -> None:
    settings = Settings(tools=(entry("bash", "no_such_package:bash"),))

    assert "bash" not in names(settings)
    assert [entry.name for entry, _ in tool_problems(settings)] == ["bash"]


def test_a_tool_without_a_group_is_for_agents_without_groups() -> None:
    settings = Settings(tools=(ToolSettings(name="hello", use=f"{__name__}:greeter"),))

    assert "hello" in names(settings)
    assert "hello" not in names(settings, groups=["file:read", "bash"])
    assert tool_groups(settings) == ["file:read", "file:write", "bash"]


def test_the_sandbox_and_web_tools_are_plug_ins() -> None:
    loaded = {name: plugin.load() for name, plugin in find_plugins("deerflow.tools").items()}

    assert loaded == {
        **{tool.name: tool for _, tool in SANDBOX_TOOLS},
        "image_search": image_search_tool,
        "web_fetch": web_fetch_tool,
        "web_search": web_search_tool,
    }


def test_groups_narrow_the_tools_but_not_the_built_in_ones() -> None:
    assert names(Settings(), groups=["file:read"]) == [*FILES[:5], *BUILT_IN]
    assert names(Settings(), groups=[]) == BUILT_IN


def test_a_model_that_sees_gets_view_image() -> None:
    sees, blind = models(supports_vision=True), models(supports_vision=False)

    assert "view_image" in names(Settings(), model_name="m", models=sees)
    assert "view_image" in names(Settings(models=tuple(sees.values())), model_name="m")
    assert "view_image" not in names(Settings(), model_name="m", models=blind)
    assert "view_image" not in names(Settings(), model_name="other", models=sees)


def test_task_is_there_when_subagents_are_on() -> None:
    assert "task" in names(Settings(), subagent_enabled=True, subagent_tools=[task])
    assert "task" not in names(Settings(), subagent_enabled=False, subagent_tools=[task])


def test_tools_of_mcp_servers_can_be_left_out() -> None:
    assert names(Settings(), groups=[], mcp_tools=[task], acp_tools=[other_bash])[-2:] == ["task", "bash"]
    assert "task" not in names(Settings(), include_mcp=False, mcp_tools=[task])


def test_the_section_names_tools_as_older_files_do() -> None:
    settings = Settings(tools=(entry("bash", "deerflow.sandbox.tools:bash_tool", "bash"),))

    tools = get_available_tools(settings)

    assert tools[0] is bash_tool
    assert names(settings, groups=["web"]) == BUILT_IN


def test_a_factory_gets_the_entry_with_its_keys() -> None:
    settings = Settings(tools=(entry("hello", f"{__name__}:greeter", greeting="hi"),))

    (tool,) = (tool for tool in get_available_tools(settings) if tool.name == "hello")

    assert tool.invoke({}) == "hi"


def test_what_cannot_be_used_is_left_out_and_said() -> None:
    settings = Settings(
        tools=(
            entry("search", "no_such_package.tools:web_search_tool"),
            entry("seven", f"{__name__}:not_a_tool"),
            entry("shape", "nonsense"),
            entry("ls", "deerflow.tools.files:ls_tool"),
            entry("ls", "deerflow.tools.files:glob_tool"),
        )
    )

    problems = list(tool_problems(settings))

    assert names(settings) == ["ls", *BUILT_IN]
    assert [entry.name for entry, _ in problems] == ["search", "seven", "shape", "ls"]
    said = " ".join(text for _, text in problems)
    for words in ("package no_such_package", "is not a tool", "`module:name`", "another entry has the same"):
        assert words in said


def test_of_two_tools_with_one_name_the_first_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tools = get_available_tools(Settings(), mcp_tools=[other_bash])

    assert [tool for tool in tools if tool.name == "bash"] == [bash_tool]
    assert "tool bash of MCP servers is left out: one of the settings has that name" in caplog.text


async def test_an_entry_of_glob_or_grep_says_how_many_results_there_are(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    for number in range(5):
        (context.folders.workspace / f"{number}.txt").write_text("deer\n")
    settings = Settings(
        tools=(
            entry("glob", "deerflow.sandbox.tools:glob_tool", max_results=2),
            entry("grep", "deerflow.sandbox.tools:grep_tool", max_results=3),
        )
    )
    glob, grep, *_ = get_available_tools(settings)

    globbed = await answer_of(glob, context, pattern="*.txt", path=WORKSPACE)
    more = await answer_of(glob, context, pattern="*.txt", path=WORKSPACE, max_results=900)
    one = await answer_of(glob, context, pattern="*.txt", path=WORKSPACE, max_results=1)
    grepped = await answer_of(grep, context, pattern="deer", path=WORKSPACE)

    assert [text.count(".txt") for text in (globbed.text, more.text, one.text)] == [2, 2, 1]
    assert grepped.text.count("deer") == 3
    assert glob.args["max_results"]["default"] == 2
    assert glob_tool.args["max_results"]["default"] == 200


@pytest.mark.parametrize("most", [0, -1, "many", True, None])
def test_a_number_of_results_that_is_none_is_said_and_left_out(
    most: object, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(tools=(entry("glob", "deerflow.sandbox.tools:glob_tool", max_results=most),))

    with caplog.at_level(logging.WARNING):
        tool = get_available_tools(settings)[0]

    assert tool is glob_tool
    assert ("max_results" in caplog.text) is (most is not None)


def test_more_results_than_the_tool_can_give_are_cut_to_what_it_can() -> None:
    settings = Settings(tools=(entry("glob", "deerflow.sandbox.tools:glob_tool", max_results=10**9),))

    assert get_available_tools(settings)[0].args["max_results"]["default"] == 1000


def test_no_schema_has_parameters_that_langchain_injects() -> None:
    """`PlainTool` does not look for them, since all of its schemas are ours."""
    found = [each for each in get_available_tools(Settings()) if isinstance(each, PlainTool)]

    values = {"description": "why", "runtime": object(), "callbacks": None}
    for each in found:
        assert each._filter_injected_args(values) == StructuredTool._filter_injected_args(each, values), each
    assert found
