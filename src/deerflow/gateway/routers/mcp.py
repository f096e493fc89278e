"""The MCP servers of `extensions_config.json` over HTTP, without their secrets."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.config.extensions import McpServerSettings
from deerflow.config.extensions_file import read_document
from deerflow.config.masking import masked_server, unmasked_server
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.gateway.deps import House, json_response
from deerflow.mcp import ServerStatus

router = APIRouter(tags=["mcp"])

ServerName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_COMMANDS = frozenset({"npx", "uvx"})
_COMMANDS_VARIABLE = "DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST"
_CODE_FLAGS = frozenset({"-c", "--call", "-e", "--eval", "--node-options", "--script-shell", "--shell"})
_CODE_VARIABLES = (
    "BASH_ENV", "DYLD_", "ENV", "GIT_", "LD_", "NODE_OPTIONS", "NODE_PATH", "NPM_CONFIG_", "PATH", "PERL5",
    "PYTHON", "RUBYOPT", "UV_",
)  # fmt: skip
"""Beginnings of variables that make a program run code, or fetch it from elsewhere."""
_DEFAULTS = McpServerSettings.model_construct()


class McpConfig(BaseModel):
    """All servers, in place of those that are there."""

    model_config = ConfigDict(extra="ignore")

    mcp_servers: dict[ServerName, dict[str, Any]] = Field(max_length=200)


class McpSwitch(BaseModel):
    """One server that is switched on or off."""

    model_config = ConfigDict(extra="ignore")

    server_name: ServerName
    enabled: bool


@router.get("/mcp/config")
async def get_config(house: House) -> Response:
    """Return the servers; secrets are hidden, variables are shown by name."""
    return json_response(await _config_out(house))


@router.put("/mcp/config")
async def put_config(body: McpConfig, house: House) -> Response:
    """Write all servers; what is sent as it was shown is kept as it is in the file."""

    def change(known: Mapping[str, Any]) -> dict[str, Any]:
        servers = {
            name: unmasked_server(name, entry, known.get(name)) for name, entry in body.mcp_servers.items()
        }
        for name, entry in servers.items():
            if _program(entry) != _program(known.get(name) or {}):
                _check_program(name, entry, house.loaded.env)
        return servers

    await _edit(house, change)
    return json_response(await _config_out(house))


@router.patch("/mcp/config")
async def switch_server(body: McpSwitch, house: House) -> Response:
    """Switch one server on or off."""

    def change(known: Mapping[str, Any]) -> dict[str, Any]:
        if body.server_name not in known:
            raise NotFoundError("MCP server", body.server_name, known=known)
        return {**known, body.server_name: {**known[body.server_name], "enabled": body.enabled}}

    await _edit(house, change)
    return json_response(await _config_out(house))


@router.get("/mcp/status")
async def get_status(house: House) -> Response:
    """Return how the servers that are on are doing: whether they were reached, why not, and their tools."""
    await house.refresh()
    return json_response({"servers": [_status_out(status) for status in house.mcp.statuses]})


@router.post("/mcp/cache/reset")
async def reset_connections(house: House) -> Response:
    """Close all connections; the next run opens them anew and asks every server for its tools."""
    await house.mcp.reset()
    return json_response({"success": True, "message": "The next run opens all MCP servers anew."})


def _status_out(status: ServerStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "state": status.state,
        "problem": status.problem,
        "tools": list(status.tools),
    }


async def _edit(house: DeerFlow, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    def edit(document: Mapping[str, Any]) -> dict[str, Any]:
        return {_key_in(document): change(_servers(document))}

    await house.edit_extensions(edit)


async def _config_out(house: DeerFlow) -> dict[str, Any]:
    document = (await asyncio.to_thread(read_document, house.loaded.extensions_path)).data
    servers = {name: masked_server(_full(entry)) for name, entry in _servers(document).items()}
    return {"mcp_servers": servers}


def _servers(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = document.get(_key_in(document))
    entries = found if isinstance(found, dict) else {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _key_in(document: Mapping[str, Any]) -> str:
    return "mcp_servers" if "mcp_servers" in document else "mcpServers"


def _full(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the defaults of what it does not say."""
    kind = entry.get("type") or entry.get("transport")
    if kind is None:
        kind = "http" if entry.get("url") and not entry.get("command") else "stdio"
    defaults = _DEFAULTS.model_dump(mode="json")
    said = {key: value for key, value in entry.items() if key != "transport"}
    return {**defaults, **said, "type": kind}


def _program(entry: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return entry.get("command"), entry.get("args") or [], entry.get("env") or {}


def _check_program(name: str, entry: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Refuse a server that would let whoever reaches this API run any program on this machine."""
    command, arguments, variables = _program(entry)
    if command is None:
        return
    allowed = _COMMANDS | {
        part.strip() for part in env.get(_COMMANDS_VARIABLE, "").split(",") if part.strip()
    }
    if not isinstance(command, str) or command not in allowed:
        raise InvalidInputError(
            f"mcp_servers.{name}.command '{PurePath(str(command)).name[:80]}' may not be set over HTTP; "
            f"allowed: {', '.join(sorted(allowed))}. Write it into extensions_config.json, or name it in "
            f"{_COMMANDS_VARIABLE}."
        )
    flags = [str(argument).partition("=")[0] for argument in arguments if isinstance(arguments, list)]
    wrong = next((flag for flag in flags if flag in _CODE_FLAGS), None)
    if wrong is not None:
        raise InvalidInputError(
            f"mcp_servers.{name}.args must not have {wrong}: it runs code from its argument"
        )
    names = variables if isinstance(variables, Mapping) else {}
    bad = next((key for key in names if str(key).upper().startswith(_CODE_VARIABLES)), None)
    if bad is not None:
        raise InvalidInputError(
            f"mcp_servers.{name}.env must not set {str(bad)[:80]}: it can make programs run code"
        )
