"""Which tools a type of sub-agent gets of those that there are."""

from deerflow.config import Settings
from deerflow.subagents.builder import allowed_tools
from deerflow.subagents.config import SubagentConfig
from deerflow.tools import get_available_tools


def names(config: SubagentConfig) -> set[str]:
    return {tool.name for tool in allowed_tools(config, get_available_tools(Settings()))}


def test_who_may_not_have_a_shell_may_not_have_programs() -> None:
    denied = SubagentConfig("reader", "reads", "You read.", disallowed_tools=("bash",))
    named = SubagentConfig(
        "reader", "reads", "You read.", tools=("bash", "python"), disallowed_tools=("bash",)
    )
    free = SubagentConfig("worker", "works", "You work.")

    assert not {"bash", "python"} & names(denied)
    assert names(named) == set()
    assert {"bash", "python", "edit_files"} <= names(free)
