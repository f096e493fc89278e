"""Tools that changed since they were accepted."""

import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from deerflow.errors import ConflictError, NotFoundError
from deerflow.mcp import McpServer, ToolPins
from deerflow.mcp.base import ServerEnvironment
from deerflow.mcp.pins import Approval
from deerflow.mcp.session import connect

from .conftest import BROKEN, settings_of


class ChangingServer:
    """A server whose tools say what a file says, opened anew for every look."""

    def __init__(self, environment: ServerEnvironment) -> None:
        self.file = environment.folder / "changing.json"
        self.store = InMemoryStore()
        self._environment = environment

    def say(self, **tools: Any) -> None:
        self.file.write_text(json.dumps(tools))

    def server(self, approval: Approval = "changes", **more: Any) -> McpServer:
        settings = settings_of(BROKEN, "told", str(self.file), **more)
        pins = ToolPins(self.store, approval=approval)
        return McpServer("sums", settings, connect=connect, environment=self._environment, pins=pins)

    async def look(self, approval: Approval = "changes", **more: Any) -> tuple[list[str], dict[str, Any]]:
        """Return the tools that are offered, and those that are withheld."""
        server = self.server(approval, **more)
        offered = [tool.name for tool in await server.tools()]
        withheld = {tool.name: tool for tool in server.status.withheld}
        await server.aclose()
        return offered, withheld


@pytest.fixture
def changing(environment: ServerEnvironment) -> ChangingServer:
    return ChangingServer(environment)


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"description": "Adds, and more."}, ("description",)),
        ({"inputSchema": {"type": "object", "properties": {"file": {"type": "string"}}}}, ("input_schema",)),
        ({"annotations": {"readOnlyHint": True}}, ("hints",)),
    ],
)
async def test_a_tool_that_changed_is_withheld_and_the_others_stay(
    changes: dict[str, Any], what: tuple[str, ...], changing: ChangingServer
) -> None:
    add = {"description": "Adds.", "inputSchema": SCHEMA}
    changing.say(add=add, sub={"description": "Subtracts."})
    assert await changing.look() == (["add", "sub"], {})

    changing.say(add={**add, **changes}, sub={"description": "Subtracts."}, fresh={"description": "New."})
    offered, withheld = await changing.look()

    assert offered == ["sub", "fresh"]
    assert withheld["add"].changed == what
    changing.say(add=add)
    assert await changing.look() == (["add"], {}), "what was accepted stays accepted"


async def test_an_approval_counts_for_what_was_seen_and_in_every_process(changing: ChangingServer) -> None:
    changing.say(add={"description": "Adds."})
    await changing.look()
    changing.say(add={"description": "Adds more."})
    here, elsewhere = changing.server(), changing.server()
    assert [await server.tools() for server in (here, elsewhere)] == [(), ()]
    seen = here.status.withheld[0].fingerprint

    with pytest.raises(ConflictError, match="has changed again"):
        await here.approve({"add": "another"})
    with pytest.raises(NotFoundError):
        await here.approve({"mul": seen})
    await here.approve({"add": seen})

    for server in (here, elsewhere):
        assert [tool.name for tool in await server.tools()] == ["add"]
        await server.aclose()


async def test_new_tools_are_trusted_or_not_as_the_settings_say(changing: ChangingServer) -> None:
    changing.say(add={"description": "Adds."})

    offered, withheld = await changing.look("all")
    assert (offered, withheld["add"].reason) == ([], "it is new")
    assert await changing.look("off") == (["add"], {})
    assert await changing.look("changes") == (["add"], {})
    changing.say(add={"description": "Adds more."})
    assert await changing.look("off") == (["add"], {})


async def test_an_operator_who_replaces_the_server_begins_anew(
    changing: ChangingServer, tmp_path: Path
) -> None:
    changing.say(add={"description": "Adds."})
    await changing.look()

    changing.file = tmp_path / "other.json"
    changing.say(add={"description": "Adds otherwise."})

    assert await changing.look() == (["add"], {})
    assert await changing.look(tool_name_prefix=False) == (["add"], {}), (
        "a name for the model changes nothing"
    )
