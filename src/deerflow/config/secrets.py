"""Keeps secrets out of messages and logs: detects keys that hold secrets and masks their values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

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
_SECRET_FOLDERS = frozenset(
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
    return any(name in _SECRET_FOLDERS for name in names[:-1]) and names[-1].lower() not in _PLAIN_HEADERS


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
            hidden = key in _SECRET_FOLDERS or is_secret_key(key)
            return {name: HIDDEN if hidden else masked(str(name), inner) for name, inner in value.items()}
        case None | bool() | int() | float():
            return value
        case str():
            return HIDDEN if is_secret_key(key) else without_login(value)
        case list() | tuple() if is_secret_key(key):
            return HIDDEN
    return value
