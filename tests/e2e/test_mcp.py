"""Tools of MCP servers, as the lead agent uses them over HTTP."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Gateway, running_gateway
from support.mcp_server import serving_mcp
from support.model_server import ScriptedModel, call, calls, text
from support.scene import Scene

SUPPORT = Path(__file__).parents[1] / "support"


def program(script: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SUPPORT / script), *arguments], **more}


def write_servers(home: Path, **servers: dict[str, Any]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))


@contextmanager
def scene_with(
    home: Path, model: ScriptedModel, servers: dict[str, dict[str, Any]], **sections: Any
) -> Iterator[Scene]:
    write_servers(home, **servers)
    with running_gateway(home, model.base_url, **sections) as gateway:
        yield Scene(gateway, model)


def offered(model: ScriptedModel, request: int = -1) -> dict[str, Any]:
    """Return what the model was offered, by name."""
    tools = model.requests[request].body.get("tools", [])
    return {tool["function"]["name"]: tool["function"] for tool in tools}


async def test_the_lead_calls_tools_over_both_transports(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(
        call("files_add", a=40, b=2) + call("web_speak", runtime="a", config="b", description="c"),
        text("Done."),
    )
    with serving_mcp() as url:
        servers = {"files": program("mcp_server.py"), "web": {"type": "http", "url": url}}
        with scene_with(tmp_path, model, servers) as scene:
            seen = await scene.ask()

    assert offered(model, 0)["files_add"] == {
        "name": "files_add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    }
    assert [result["content"] for result in seen.results] == ["42", "a, b, c"]
    assert scene.shown()[0] == "<tool-result>\n42\n</tool-result>"


async def test_deferred_tools_are_named_searched_for_and_then_stay(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.will_say(
        call("files_add", a=1, b=1),
        call("tool_search", query="add numbers"),
        call("files_add", a=1, b=1),
        text("Two."),
        call("files_add", a=2, b=2),
        text("Four."),
    )
    with scene_with(
        tmp_path, model, {"files": program("mcp_server.py")}, tool_search={"enabled": True}
    ) as scene:
        seen = await scene.ask("one and one?")
        again = await scene.ask("two and two?")

    prompts = [request.messages[0]["content"] for request in model.requests]
    assert len(set(prompts)) == 1, "the prompt stays the same, so that it can be cached"
    assert "<deferred_tools>" in prompts[0]
    assert "- files_add\n" in prompts[0]
    assert "Add two numbers" not in prompts[0]
    names = [{name for name in offered(model, n) if name.startswith("files_")} for n in range(6)]
    assert names == [set(), set(), {"files_add"}, {"files_add"}, {"files_add"}, {"files_add"}]
    assert "tool_search" in offered(model, 0)
    refused, found, result = seen.results
    assert refused["status"] == "error"
    assert 'tool_search with the query "select:files_add"' in refused["content"]
    assert '"description": "Add two numbers."' in found["content"]
    assert (result["content"], again.results[-1]["content"]) == ("2", "4")
    assert set(again.values["promoted"]) == {"files_add"}


async def test_without_servers_that_offer_something_nothing_is_deferred(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.will_say(text("Hello."))
    broken = {"quit": program("mcp_broken.py", "quit")}
    with scene_with(tmp_path, model, broken, tool_search={"enabled": True}) as scene:
        seen = await scene.ask()

    assert seen.answer == "Hello."
    assert "tool_search" not in offered(model)
    assert "<deferred_tools>" not in model.requests[0].messages[0]["content"]
