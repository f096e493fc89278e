"""Keeps secrets out of messages, logs and answers: finds the keys that hold them and masks their values.

Clients get the entries of MCP servers masked, except for variables, and may send them back: a value that
comes back as it was shown stays unchanged.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from deerflow.config.variables import variable_in
from deerflow.config.yaml_file import KeyPath
from deerflow.errors import InvalidInputError

HIDDEN = "(hidden)"
SHOWN_CHARS = 80

SECRET_WORDS = frozenset(
    {
        "accesskey",
        "accesstoken",
        "apikey",
        "authkey",
        "authorization",
        "authtoken",
        "clientsecret",
        "cookie",
        "credential",
        "credentials",
        "key",
        "keys",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "privatekey",
        "pwd",
        "secret",
        "secretkey",
        "secrets",
        "token",
    }
)
_SECRET_MAPPINGS = frozenset(
    {"env", "environment", "headers", "default_headers", "extra_headers", "extra_token_params"}
)
"""Mappings whose values are usually secrets."""
_PLAIN_HEADERS = frozenset(
    {
        "accept",
        "accept-language",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "http-referer",
        "openai-organization",
        "openai-project",
        "referer",
        "user-agent",
        "x-title",
    }
)
"""Headers that are not secret: they describe client and content, and their values also occur elsewhere."""
_SCHEME = re.compile(r"(?i:bearer|basic|token|apikey) +(\S+)")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_RUN = re.compile(r"[A-Za-z0-9]{12,}")
_SHORTEST_TOKEN = 16
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
SHORTEST_SECRET = 6
"""Shorter secrets may be ordinary words: redacting them would garble messages."""


def is_secret_key(name: str) -> bool:
    """Return whether a key of this name usually holds a secret: `api_key` does, `max_tokens` does not."""
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in SECRET_WORDS


def is_secret_path(path: tuple[str | int, ...]) -> bool:
    """Return whether the value at `path` is a secret, judged by its key and by the mappings around it."""
    names = [part for part in path if isinstance(part, str)]
    telling = names[1:] or names  # not the section's name: keys of `authorization` need not be secret
    if any(map(is_secret_key, telling)):
        return True
    return any(name in _SECRET_MAPPINGS for name in names[:-1]) and names[-1].lower() not in _PLAIN_HEADERS


def shown(value: object, path: tuple[str | int, ...]) -> str:
    """Return `value` for a message: shortened, and never a secret."""
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    if is_secret_path(path):
        return HIDDEN
    text = without_login(str(value))
    return repr(text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…")


def without_login(text: str) -> str:
    """Return `text` with user name and password removed from its URLs."""
    return _LOGIN_IN_URL.sub(f"{HIDDEN}@", text)


def secret_values(document: object, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """Yield every text in `document` under a secret's key, for redaction in logs."""
    match document:
        case Mapping():
            for key, value in document.items():
                yield from secret_values(value, (*path, str(key)))
        case list() | tuple():
            for index, value in enumerate(document):
                yield from secret_values(value, (*path, index))
        case str() if len(document) >= SHORTEST_SECRET and is_secret_path(path):
            yield document
            if scheme := _SCHEME.fullmatch(document):  # a service may echo the token without its scheme
                yield scheme[1]
        case str() if "://" in document:
            yield from url_secrets(document)


def url_secrets(url: str, *, with_path: bool = False) -> Iterator[str]:
    """Yield the credentials and secret parameters of a URL; `with_path` adds tokens in its path."""
    try:
        parts = urlsplit(url)
        found = [parts.username, parts.password]
        found += [value for key, value in parse_qsl(parts.query) if is_secret_key(key)]
    except ValueError:
        return
    if with_path:
        found += [segment for segment in parts.path.split("/") if is_token(segment)]
    yield from (text for text in found if text and len(text) >= SHORTEST_SECRET)


def is_token(segment: str) -> bool:
    """Return whether a path segment looks random: an id or key, not chosen words."""
    if _UUID.fullmatch(segment):
        return True
    return len(segment) >= _SHORTEST_TOKEN and any(map(_is_mixed, _RUN.findall(segment)))


def _is_mixed(run: str) -> bool:
    kinds = [any(map(kind, run)) for kind in (str.islower, str.isupper, str.isdigit)]
    return sum(kinds) > 1


def masked(key: str, value: Any) -> Any:
    """Return `value`, or a placeholder if `key` names a secret; for `repr`."""
    match value:
        case Mapping():
            hidden = key in _SECRET_MAPPINGS or is_secret_key(key)
            return {name: HIDDEN if hidden else masked(str(name), inner) for name, inner in value.items()}
        case None | bool() | int() | float():
            return value
        case str():
            return HIDDEN if is_secret_key(key) else without_login(value)
        case list() | tuple() if is_secret_key(key):
            return HIDDEN
    return value


MASK = "********"
_FLAG = re.compile(r"(--?[\w-]+)=(.+)", re.DOTALL)


def masked_server(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server entry with its secrets masked; the server's name does not affect the masking."""
    return {key: _masked(value, ("mcpServers", key)) for key, value in entry.items()}


def unmasked_server(name: str, sent: Mapping[str, Any], known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entry that a client sent, with masked values restored from the known entry.

    Secrets for one address are not restored for another: a client that may edit need not know the secrets.
    """
    kept = {key: value for key, value in (known or {}).items() if not is_other_host(key, sent, known or {})}
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


def _masked(value: Any, path: KeyPath) -> Any:
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


def _unmasked(value: Any, shown: Any, known: Any, path: KeyPath) -> Any:
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
                _unmasked(inner, *_unchanged_item(value, shown, known, index), (*path, index))
                for index, inner in enumerate(value)
            ]
        case str() if MASK in value:
            where = ".".join(map(str, path))
            raise InvalidInputError(
                f"mcp_servers.{where} is hidden, and there is no value to keep: send the value itself, "
                "or $NAME for a variable of the environment"
            )
    return value


def is_other_host(key: str, sent: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
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


def _unchanged_item(sent: list[Any], shown: Any, known: Any, index: int) -> tuple[Any, Any]:
    """Return the old item at an index if all before it is unchanged: a value belongs to the flag before."""
    if not isinstance(shown, list) or not isinstance(known, list | tuple) or index >= len(known):
        return None, None
    return (shown[index], known[index]) if sent[:index] == shown[:index] else (None, None)
