"""Searching for tools that the model knows by name only."""

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from deerflow.agents.middlewares.tool_offer import routed
from deerflow.config import Settings
from deerflow.tools.catalog import get_available_tools
from deerflow.tools.deferred import DeferredToolRegistry, defer, fingerprint, is_deferred, is_promoted
from deerflow.tools.mcp import FINGERPRINT, MCP_SERVER, ROUTING


def tool(name: str, description: str = "does it", **metadata: Any) -> BaseTool:
    async def act() -> str:
        return name

    about = {MCP_SERVER: "s", FINGERPRINT: f"{name}-1", **metadata}
    return StructuredTool.from_function(
        coroutine=act, name=name, description=description, args_schema={"type": "object"}, metadata=about
    )


TOOLS = defer(
    [
        tool("github_create_issue", "Open an issue."),
        tool("github_list_issues", "List what is open."),
        tool("jira_create_issue", "Create a ticket in a project."),
        tool("mail_send", "Send a letter; also opens attachments. (a+)+$"),
        tool("desk_open", "创建工单并通知客服"),
        *(tool(f"filler_{number}") for number in range(20)),
    ]
)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("select:mail_send,jira_create_issue", ["mail_send", "jira_create_issue"]),
        ("SELECT: mail_send , mail_send, unknown", ["mail_send"]),
        ("letter", ["mail_send"]),
        ("create issue", ["github_create_issue", "jira_create_issue", "github_list_issues"]),
        ("+github list", ["github_list_issues", "github_create_issue"]),
        ("+github +jira", []),
        (
            "github.*issue|mail",
            ["github_create_issue", "github_list_issues", "mail_send", "jira_create_issue"],
        ),
        ("ISSUES", ["github_list_issues"]),
        ("帮我创建一个工单", ["desk_open"]),
        ("unicorn xylophone", []),
        ("???", []),
        ("select:", []),
    ],
)
def test_what_fits_is_found_best_first(query: str, found: list[str]) -> None:
    names = [tool.name for tool in DeferredToolRegistry(TOOLS).search(query)]

    assert sorted(names) == sorted(found)
    assert names[:1] == found[:1]


def test_no_more_than_five_are_found_at_once() -> None:
    registry = DeferredToolRegistry(TOOLS)

    assert len(registry.search("filler")) == 5
    assert len(registry.search("select:" + ",".join(registry.names))) == 5


def test_a_hostile_query_takes_no_time() -> None:
    registry = DeferredToolRegistry([*TOOLS, *defer([tool("long", "a" * 4000)])])

    assert registry.search("(a+)+$" * 80 + "b" * 20)


def test_a_tool_that_is_described_anew_has_to_be_looked_at_again() -> None:
    known = {"mail_send": fingerprint(tool("mail_send"))}

    assert is_promoted(tool("mail_send"), known)
    assert not is_promoted(tool("mail_send", **{FINGERPRINT: "mail_send-2"}), known)
    assert not is_promoted(tool("other"), known)
    assert not is_promoted(tool("mail_send"), None)


def test_tools_of_servers_are_deferred_where_the_settings_say_so_and_the_search_is_there() -> None:
    searching = Settings.model_validate({"tool_search": {"enabled": True}})
    servers = [tool("mail_send"), tool("ask_clarification")]

    plain = get_available_tools(Settings(), mcp_tools=servers)
    deferred = get_available_tools(searching, mcp_tools=servers)
    without = get_available_tools(searching, mcp_tools=servers, include_mcp=False)

    assert [each.name for each in plain if is_deferred(each)] == []
    assert [each.name for each in deferred if is_deferred(each)] == ["mail_send"], "ours counts first"
    assert [each.name for each in deferred if each.name == "tool_search"] == ["tool_search"]
    assert {"tool_search", "mail_send"}.isdisjoint(each.name for each in without)
    assert "tool_search" not in [each.name for each in get_available_tools(searching)]


def test_words_point_to_the_most_important_tools_first() -> None:
    tools = [
        tool("low", **{ROUTING: {"priority": 1, "words": ("deer",)}}),
        tool("high", **{ROUTING: {"priority": 2, "words": ("elk", "deer")}}),
        tool("none"),
        {"type": "function"},
    ]

    assert [each.name for each in routed(tools, "Where do DEER sleep?")] == ["high", "low"]
    assert routed(tools, "Where do hares sleep?") == []
