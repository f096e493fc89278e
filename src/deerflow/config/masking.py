"""Masks the secrets in MCP server entries for clients, and restores them when a client sends an entry back.

A variable in the file is shown as that variable. A value that comes back as it was shown stays unchanged.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from deerflow.config.secrets import (
    HIDDEN,
    SHORTEST_SECRET,
    is_secret_key,
    is_secret_path,
    is_token,
    url_secrets,
    without_login,
)
from deerflow.config.variables import variable_in
from deerflow.errors import InvalidInputError

MASK = "********"
_FLAG = re.compile(r"(--?[\w-]+)=(.+)", re.DOTALL)
Path = tuple[str | int, ...]


def masked_server(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server entry with its secrets masked; the server's name does not affect the masking."""
    return {key: _masked(value, ("mcpServers", key)) for key, value in entry.items()}


def unmasked_server(name: str, sent: Mapping[str, Any], known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entry that a client sent, with masked values restored from the known entry.

    Secrets for one address are not restored for another: a client that may edit need not know the secrets.
    """
    kept = {key: value for key, value in (known or {}).items() if not goes_elsewhere(key, sent, known or {})}
    shown = masked_server(kept)
    return {key: _unmasked(value, shown.get(key), kept.get(key), (name, key)) for key, value in sent.items()}


def hidden_values(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that `masked_server` masks, for redaction in logs and messages."""
    found = _hidden(masked_server(entry), entry)
    yield from (text for text in found if len(text) >= SHORTEST_SECRET)


def _hidden(shown: Any, value: Any) -> Iterator[str]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _hidden(shown[key], inner)
        case list() | tuple():
            for part, inner in zip(shown, value, strict=True):
                yield from _hidden(part, inner)
        case str() if shown != value:
            yield from (value,) if shown == MASK else _hidden_part(value)


def _hidden_part(text: str) -> Iterator[str]:
    """Yield the secrets inside a text: the value of a flag, or the credentials and keys in a URL."""
    if flag := _FLAG.fullmatch(text):
        yield flag[2]
    yield from url_secrets(text, with_path=True)


def _masked(value: Any, path: Path) -> Any:
    match value:
        case Mapping():
            return {key: _masked(inner, (*path, str(key))) for key, inner in value.items()}
        case list() | tuple() if path[-1] == "args":
            return _masked_arguments(list(value))
        case list() | tuple():
            return [_masked(inner, (*path, index)) for index, inner in enumerate(value)]
        case str() if value and variable_in(value) is None:
            return MASK if is_secret_path(path) else masked_address(value)
    return value


def _masked_arguments(arguments: list[Any]) -> list[Any]:
    """Mask the value in `--token=x` and the argument after `--token`."""
    shown = []
    is_next_secret = False
    for argument in arguments:
        text = str(argument)
        flag = _FLAG.fullmatch(text)
        if flag and is_secret_key(flag[1]):
            shown.append(f"{flag[1]}={MASK}")
        elif is_next_secret and not text.startswith("-") and variable_in(text) is None:
            shown.append(MASK)
        else:
            shown.append(masked_address(argument) if isinstance(argument, str) else argument)
        is_next_secret = text.startswith("-") and flag is None and is_secret_key(text)
    return shown


def masked_address(text: str) -> str:
    """Mask the credentials, the secret parameters and the tokens in the path of a URL; keep all else."""
    if "://" not in text:
        return text
    bare = without_login(text).replace(f"{HIDDEN}@", f"{MASK}@")
    try:
        parts = urlsplit(bare)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return bare
    path = "/".join(MASK if is_token(segment) else segment for segment in parts.path.split("/"))
    if not any(is_secret_key(key) for key, _ in query):
        return bare if path == parts.path else urlunsplit(parts._replace(path=path))
    shown = [(key, MASK if is_secret_key(key) else value) for key, value in query]
    return urlunsplit(parts._replace(path=path, query=urlencode(shown, safe="*$")))


def _unmasked(value: Any, shown: Any, known: Any, path: Path) -> Any:
    if known is not None and value == shown:
        return known
    match value:
        case Mapping():
            old_shown, old = (part if isinstance(part, Mapping) else {} for part in (shown, known))
            return {
                key: _unmasked(inner, old_shown.get(key), old.get(key), (*path, str(key)))
                for key, inner in value.items()
            }
        case list():
            return [
                _unmasked(inner, *_same_place(value, shown, known, index), (*path, index))
                for index, inner in enumerate(value)
            ]
        case str() if MASK in value:
            where = ".".join(map(str, path))
            raise InvalidInputError(
                f"mcp_servers.{where} is hidden, and there is no value to keep: send the value itself, "
                "or $NAME for a variable of the environment"
            )
    return value


def goes_elsewhere(key: str, sent: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether the secrets under a key would be sent to another host than before."""
    if key == "headers":
        return _origin(sent.get("url")) != _origin(known.get("url"))
    if key == "oauth" and isinstance(known.get(key), Mapping) and isinstance(sent.get(key), Mapping):
        return _origin(sent[key].get("token_url")) != _origin(known[key].get("token_url"))
    return False


def _origin(address: Any) -> tuple[str, str]:
    try:
        parts = urlsplit(str(address))
    except ValueError:
        return "", str(address)
    host = parts.netloc.rpartition("@")[2].lower()
    return (parts.scheme.lower(), host) if host else ("", str(address))


def _same_place(sent: list[Any], shown: Any, known: Any, index: int) -> tuple[Any, Any]:
    """Return the old item at an index if all before it is unchanged: a value belongs to the flag before."""
    if not isinstance(shown, list) or not isinstance(known, list | tuple) or index >= len(known):
        return None, None
    return (shown[index], known[index]) if sent[:index] == shown[:index] else (None, None)
