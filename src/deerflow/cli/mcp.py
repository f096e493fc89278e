"""`deerflow mcp`: shows the MCP servers of a running server, and approves withheld tools."""

import asyncio
import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal
from urllib.parse import quote

import aiohttp
import typer
from rich.console import Console

from deerflow.cli.server_api import SECONDS, ServerApi
from deerflow.domain.visible_text import printable
from deerflow.errors import NotFoundError

_PARTS = ("description", "input_schema", "hints")


def execute(
    *,
    action: Literal["status", "approve"],
    url: str,
    server: str = "",
    tools: Sequence[str] = (),
    is_sure: bool = False,
) -> int:
    """Execute the action on the server at `url`."""
    return asyncio.run(_execute(action, url, server, tools, is_sure))


async def _execute(action: str, url: str, server: str, tools: Sequence[str], is_sure: bool) -> int:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session:
        api = ServerApi(session, url)
        servers = {found["name"]: found for found in (await api.ask("GET", "/mcp/status"))["servers"]}
        if action == "status":
            _print(line for found in servers.values() for line in _lines(found))
            return 0
        if server not in servers:
            raise NotFoundError("MCP server", server, known=servers)
        return await _approve(api, servers[server], tools, is_sure)


async def _approve(api: ServerApi, server: dict[str, Any], tools: Sequence[str], is_sure: bool) -> int:
    waiting = {held["tool"]: held for held in server["withheld"]}
    for tool in tools:
        if tool not in waiting:
            raise NotFoundError("tool that waits for an approval", tool, known=waiting)
    wanted = {tool: waiting[tool] for tool in tools or waiting}
    if not wanted:
        print(f"No tool of {server['name']} waits for an approval.")
        return 0
    _print(line for held in wanted.values() for line in _difference(held))
    if not is_sure:
        typer.confirm("Let agents use them as they are now?", abort=True)
    path = f"/mcp/servers/{quote(server['name'], safe='')}/approve"
    await api.ask("POST", path, {"tools": {tool: held["fingerprint"] for tool, held in wanted.items()}})
    print(f"Approved: {', '.join(map(printable, wanted))}")
    return 0


def _lines(server: dict[str, Any]) -> Iterator[str]:
    problem = f": {server['problem']}" if server["problem"] else ""
    yield f"{server['name']}  {server['state']}  {len(server['tools'])} tool(s){problem}"
    for tool in server["left_out"]:
        yield f"  left out  {tool['tool']}: {tool['reason']}"
    for tool in server["withheld"]:
        yield f"  withheld  {tool['tool']}: {tool['reason']}; deerflow mcp approve {server['name']}"


def _difference(held: dict[str, Any]) -> Iterator[str]:
    """Yield a diff of a tool's definition: when it was accepted, and now."""
    yield f"{held['tool']}: {held['reason']}"
    for part in _PARTS:
        before = _text((held["before"] or {}).get(part))
        lines = difflib.unified_diff(before, _text(held["now"][part]), lineterm="", n=2)
        yield from (f"  {line}" for line in list(lines)[2:] if not line.startswith("@@"))


def _text(value: Any) -> list[str]:
    if value is None:
        return []
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text.splitlines()


def _print(lines: Iterator[str]) -> None:
    console = Console(highlight=False, markup=False)
    for line in lines:
        console.print(printable(line), soft_wrap=True)
