"""Routes for the MCP servers of `extensions_config.json`, without their secrets.

Entries that an operator wrote into the file can only be enabled or disabled. Entries that came over HTTP are
marked, so that their addresses are checked at every connection.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.config.extensions import McpServerSettings
from deerflow.config.extensions_file import read_document
from deerflow.config.secrets import is_other_host, masked_address, masked_server, unmasked_server
from deerflow.config.variables import variable_in
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.gateway.deps import CurrentApp, json_response, may_set_commands
from deerflow.gateway.openapi import answers
from deerflow.guarded_http import allowed_networks, check_destination, check_web_address
from deerflow.mcp import ServerStatus

router = APIRouter(tags=["mcp"])

ServerName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_COMMANDS_VARIABLE = "DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST"


class McpConfig(BaseModel):
    """All servers, in place of those that are there."""

    mcp_servers: dict[ServerName, dict[str, Any]] = Field(max_length=200)


class McpSwitch(BaseModel):
    """One server that is switched on or off."""

    server_name: ServerName
    enabled: bool


class McpApproval(BaseModel):
    """Tools that may be used as they are now."""

    model_config = ConfigDict(extra="forbid")

    tools: dict[str, str] = Field(
        min_length=1,
        max_length=500,
        description="The fingerprint that `/api/mcp/status` shows under `withheld`, by tool.",
    )


@router.get("/mcp/config", **answers("McpServers", 400))
async def get_mcp_config(deerflow: CurrentApp) -> Response:
    """Return the MCP servers of `extensions_config.json`.

    Secrets are masked; variables are shown by name.
    """
    return json_response(await _config_out(deerflow))


@router.put("/mcp/config", **answers("McpServers", 400, 409))
async def put_mcp_config(body: McpConfig, deerflow: CurrentApp) -> Response:
    """Replace the MCP servers of `extensions_config.json`.

    A masked value that is sent back keeps the secret in the file. Entries that the operator wrote can only be
    switched on and off unless the settings allow more; addresses of private networks are refused (400).
    """
    await deerflow.refresh()
    known = _servers((await asyncio.to_thread(read_document, deerflow.loaded.extensions_path)).data)
    checked = await _checked_addresses(deerflow, body.mcp_servers, known)
    named = deerflow.loaded.env.get(_COMMANDS_VARIABLE, "").split(",")
    edits = ServerEdits(
        may_set_commands=may_set_commands(deerflow.settings),
        commands=ALLOWED_COMMANDS | {part.strip() for part in named if part.strip()},
        checked=checked,
    )
    await _edit(deerflow, lambda present: edits.applied(body.mcp_servers, present))
    return json_response(await _config_out(deerflow))


@router.patch("/mcp/config", **answers("McpServers", 400, 404))
async def switch_mcp_server(body: McpSwitch, deerflow: CurrentApp) -> Response:
    """Switch one MCP server on or off."""

    def change(known: Mapping[str, Any]) -> dict[str, Any]:
        if body.server_name not in known:
            raise NotFoundError("MCP server", body.server_name, known=known)
        return {**known, body.server_name: {**known[body.server_name], "enabled": body.enabled}}

    await _edit(deerflow, change)
    return json_response(await _config_out(deerflow))


@router.get("/mcp/status", **answers("McpStatus"))
async def get_mcp_status(deerflow: CurrentApp) -> Response:
    """Return the state of each MCP server that is on.

    The state tells whether the server was reached or why not, its tools, and the tools that wait for
    approval.
    """
    return json_response({"servers": [_status_out(status) for status in deerflow.mcp.statuses]})


@router.post("/mcp/servers/{name}/test", **answers("McpServer", 404, 502))
async def test_mcp_server(name: ServerName, deerflow: CurrentApp) -> Response:
    """Connect to one MCP server, unless it is connected, and return its state.

    A server that cannot be reached has the state `failed` with its problem.
    """
    await deerflow.refresh()
    return json_response(_status_out(await deerflow.mcp.test(name)))


@router.post("/mcp/servers/{name}/approve", **answers("McpServer", 400, 404, 409, 502))
async def approve_mcp_tools(name: ServerName, body: McpApproval, deerflow: CurrentApp) -> Response:
    """Approve tools of an MCP server that are withheld because they are new or changed, and return its state.

    A fingerprint that is no longer the tool's answers 409.
    """
    await deerflow.refresh()
    return json_response(_status_out(await deerflow.mcp.approve(name, body.tools)))


@router.post("/mcp/cache/reset", **answers("Done"))
async def reset_mcp_connections(deerflow: CurrentApp) -> Response:
    """Close the connections to all MCP servers; the next run opens them again and reads their tools."""
    await deerflow.mcp.reset()
    return json_response({"success": True, "message": "The next run opens all MCP servers anew."})


def _status_out(status: ServerStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "state": status.state,
        "problem": status.problem,
        "tools": list(status.tools),
        "left_out": [{"tool": tool.name, "reason": tool.reason} for tool in status.left_out],
        "withheld": [
            {
                "tool": tool.name,
                "fingerprint": tool.fingerprint,
                "reason": tool.reason,
                "changed": list(tool.changed),
                "before": tool.before,
                "now": tool.now,
            }
            for tool in status.withheld
        ],
    }


async def _edit(deerflow: DeerFlow, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    def edit(document: Mapping[str, Any]) -> dict[str, Any]:
        return {_key_in(document): change(_servers(document))}

    await deerflow.edit_extensions(edit)


async def _checked_addresses(
    deerflow: DeerFlow, sent: Mapping[str, Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> frozenset[str]:
    """Return the new addresses of all entries; raise if one is not public and not allowed."""
    new = set[str]()
    for name, entry in sent.items():
        new |= new_addresses(unmasked_server(name, entry, known.get(name)), known.get(name) or {})
    allowed = allowed_networks(deerflow.settings.runs.webhook_allow_cidrs)
    for address in new:
        if variable_in(address) is not None:
            continue  # variables are checked with those of other keys, in `ServerEdits`
        check_web_address(address, what="address of an MCP server")
        try:
            await check_destination(address, allowed)
        except OSError as error:
            raise InvalidInputError(
                f"the host of '{masked_address(address)[:80]}' was not found: {error}"
            ) from error
    return frozenset(new)


async def _config_out(deerflow: DeerFlow) -> dict[str, Any]:
    document = (await asyncio.to_thread(read_document, deerflow.loaded.extensions_path)).data
    servers = {name: masked_server(full_entry(entry)) for name, entry in _servers(document).items()}
    return {"mcp_servers": servers}


def _servers(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = document.get(_key_in(document))
    entries = found if isinstance(found, dict) else {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _key_in(document: Mapping[str, Any]) -> str:
    return "mcp_servers" if "mcp_servers" in document else "mcpServers"


ServerEntry = Mapping[str, Any]

ALLOWED_COMMANDS = frozenset({"npx", "uvx"})
_MARK = "set_over_http"
_PROGRAM_KEYS = ("command", "args", "env")
_DEFAULTS = McpServerSettings.model_construct()


@dataclass(frozen=True, slots=True)
class ServerEdits:
    """Merges the servers that a client sent into those of the file."""

    may_set_commands: bool
    commands: frozenset[str]
    """Programs that are allowed if commands may be set at all."""
    checked: frozenset[str]
    """The addresses that were resolved and accepted for this request."""

    def applied(
        self, sent: Mapping[str, ServerEntry], known: Mapping[str, ServerEntry]
    ) -> dict[str, dict[str, Any]]:
        """Return all servers to write; raise `InvalidInputError` for a change that is not allowed."""
        for name, entry in known.items():
            if name not in sent and not self._may_change(entry):
                raise _only_switched(name, "cannot be removed over HTTP")
        return {name: self._edited(name, entry, known.get(name)) for name, entry in sent.items()}

    def _edited(self, name: str, sent: ServerEntry, known: ServerEntry | None) -> dict[str, Any]:
        entry = unmasked_server(name, sent, known)
        if known is not None and is_unchanged(entry, known):
            return {**known, **({"enabled": entry["enabled"]} if "enabled" in entry else {})}
        if known is not None and not self._may_change(known):
            raise _only_switched(name, "can only be switched and tested over HTTP")
        before = known or {}
        if _program(entry) != _program(before):
            self._check_program(name, entry)
        _check_variables(name, entry, before)
        if not new_addresses(entry, before) <= self.checked:
            raise ConflictError(f"mcp_servers.{name} was changed by somebody else meanwhile; read it again")
        is_from_http = known is None or _is_from_http(known) or bool(new_addresses(entry, before))
        return {**entry, _MARK: is_from_http}

    def _may_change(self, known: ServerEntry) -> bool:
        return self.may_set_commands or _is_from_http(known)

    def _check_program(self, name: str, entry: ServerEntry) -> None:
        if not self.may_set_commands:
            raise InvalidInputError(
                f"mcp_servers.{name}: `command`, `args` and `env` run a program on the server's host and may "
                "not be set over HTTP. Write the entry into extensions_config.json, or set "
                "mcp.allow_http_commands in config.yaml."
            )
        command = entry.get("command")
        if command is not None and command not in self.commands:
            raise InvalidInputError(
                f"mcp_servers.{name}.command {str(command)[:80]!r} may not be set over HTTP; allowed: "
                f"{', '.join(sorted(self.commands))}. Write the entry into extensions_config.json, or name "
                "the command in DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST."
            )


def full_entry(entry: ServerEntry) -> dict[str, Any]:
    """Return an entry with defaults for absent keys."""
    kind = entry.get("type") or entry.get("transport")
    if kind is None:
        kind = "http" if entry.get("url") and not entry.get("command") else "stdio"
    given = {key: value for key, value in entry.items() if key != "transport"}
    return {**_DEFAULTS.model_dump(mode="json"), **given, "type": kind}


def is_unchanged(entry: ServerEntry, known: ServerEntry) -> bool:
    """Return whether an entry equals the known one, ignoring `enabled`."""
    extras = {key: value for key, value in known.items() if key not in McpServerSettings.model_fields}
    ignored = {"enabled": None, _MARK: None}
    return {**full_entry({**extras, **entry}), **ignored} == {**full_entry(known), **ignored}


def new_addresses(entry: ServerEntry, known: ServerEntry) -> frozenset[str]:
    """Return the addresses in an entry that are not in the known one."""
    return frozenset(_addresses(entry)) - frozenset(_addresses(known))


def _addresses(entry: ServerEntry) -> Iterator[str]:
    if isinstance(entry.get("url"), str):
        yield entry["url"]
    oauth = entry.get("oauth")
    if isinstance(oauth, Mapping) and isinstance(oauth.get("token_url"), str):
        yield oauth["token_url"]


def _program(entry: ServerEntry) -> tuple[Any, Any, Any]:
    return entry.get("command"), entry.get("args") or [], entry.get("env") or {}


def _is_from_http(entry: ServerEntry) -> bool:
    return entry.get(_MARK) is True


def _check_variables(name: str, entry: ServerEntry, known: ServerEntry) -> None:
    """Refuse variables that an operator did not put there: an editor could send any secret anywhere."""
    for key, value in entry.items():
        if key in _PROGRAM_KEYS:  # who may change these may run programs, which see the environment
            continue
        kept = set() if is_other_host(key, entry, known) else set(_variables(known.get(key)))
        for variable in _variables(value):
            if variable not in kept:
                raise InvalidInputError(
                    f"mcp_servers.{name}.{key} names the variable ${variable}, which this entry did not have "
                    "there for this address: write it into extensions_config.json, or send the value itself"
                )


def _variables(value: Any) -> Iterator[str]:
    match value:
        case Mapping():
            for inner in value.values():
                yield from _variables(inner)
        case list() | tuple():
            for inner in value:
                yield from _variables(inner)
        case _ if variable := variable_in(value):
            yield variable


def _only_switched(name: str, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"mcp_servers.{name} stands in extensions_config.json and {what}. Change it in the file, or set "
        "mcp.allow_http_commands in config.yaml."
    )
