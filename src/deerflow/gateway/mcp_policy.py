"""Which changes to MCP servers a request may make.

Entries that an operator wrote into the file can only be enabled or disabled. Entries that came over HTTP are
marked, so that their addresses are checked at every connection.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deerflow.config.extensions import McpServerSettings
from deerflow.config.secrets import is_other_host, unmasked_server
from deerflow.config.variables import variable_in
from deerflow.errors import ConflictError, InvalidInputError

Entry = Mapping[str, Any]

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

    def applied(self, sent: Mapping[str, Entry], known: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
        """Return all servers to write; raise `InvalidInputError` for a change that is not allowed."""
        for name, entry in known.items():
            if name not in sent and not self._may_change(entry):
                raise _only_switched(name, "cannot be removed over HTTP")
        return {name: self._edited(name, entry, known.get(name)) for name, entry in sent.items()}

    def _edited(self, name: str, sent: Entry, known: Entry | None) -> dict[str, Any]:
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

    def _may_change(self, known: Entry) -> bool:
        return self.may_set_commands or _is_from_http(known)

    def _check_program(self, name: str, entry: Entry) -> None:
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


def full_entry(entry: Entry) -> dict[str, Any]:
    """Return an entry with defaults for absent keys."""
    kind = entry.get("type") or entry.get("transport")
    if kind is None:
        kind = "http" if entry.get("url") and not entry.get("command") else "stdio"
    said = {key: value for key, value in entry.items() if key != "transport"}
    return {**_DEFAULTS.model_dump(mode="json"), **said, "type": kind}


def is_unchanged(entry: Entry, known: Entry) -> bool:
    """Return whether an entry equals the known one, ignoring `enabled`."""
    extras = {key: value for key, value in known.items() if key not in McpServerSettings.model_fields}
    ignored = {"enabled": None, _MARK: None}
    return {**full_entry({**extras, **entry}), **ignored} == {**full_entry(known), **ignored}


def new_addresses(entry: Entry, known: Entry) -> frozenset[str]:
    """Return the addresses in an entry that are not in the known one."""
    return frozenset(_addresses(entry)) - frozenset(_addresses(known))


def _addresses(entry: Entry) -> Iterator[str]:
    if isinstance(entry.get("url"), str):
        yield entry["url"]
    oauth = entry.get("oauth")
    if isinstance(oauth, Mapping) and isinstance(oauth.get("token_url"), str):
        yield oauth["token_url"]


def _program(entry: Entry) -> tuple[Any, Any, Any]:
    return entry.get("command"), entry.get("args") or [], entry.get("env") or {}


def _is_from_http(entry: Entry) -> bool:
    return entry.get(_MARK) is True


def _check_variables(name: str, entry: Entry, known: Entry) -> None:
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
