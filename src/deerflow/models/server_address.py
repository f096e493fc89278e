"""Resolves the server address of a model: an address in an entry takes precedence, under any of its names.

Provider classes call it `base_url`, `openai_api_base`, `anthropic_api_url`, `azure_endpoint` and so on.
Before an entry is merged with defaults, its address is renamed to the one name that its class accepts, so
that no default and no environment variable can set a second address.
"""

import re
from collections.abc import Mapping
from typing import Any

from deerflow.errors import ConfigError

Arguments = dict[str, Any]

ADDRESS_KEY = re.compile(
    r"(?!validate_)(\w+_)?(base_url|api_base|api_url|api_endpoint|endpoint|endpoint_url)"
)
"""All keys under which an entry may give the address."""
ADDRESS_NAMES = ("base_url", "api_base", "endpoint", "endpoint_url", "api_endpoint", "api_url")
"""Argument names for the address in provider classes, the most common first."""


def has_address(given: Mapping[str, Any]) -> bool:
    """Return whether an entry sets the address of its server."""
    return bool(_found(given))


def with_one_name(given: Mapping[str, Any], known: frozenset[str], *, entry: str) -> Arguments:
    """Return the arguments with the address under the name that their class accepts.

    Args:
        known: The argument names that the class accepts.
        entry: The path of the arguments in the settings, for messages.
    """
    found = _found(given)
    result = {key: value for key, value in given.items() if not (_is_address(key) and key not in found)}
    if not found:
        return result
    addresses = {name: _checked(value, path=f"{entry}.{name}") for name, value in found.items()}
    first, *others = addresses
    for other in others:
        if addresses[other].rstrip("/") != addresses[first].rstrip("/"):
            raise ConfigError(
                f"{entry} names two addresses: {first} is {addresses[first]!r} and {other} is "
                f"{addresses[other]!r}; keep the one that the key and the conversation are to go to"
            )
        del result[other]
    del result[first]
    return result | _named(addresses[first], first, known)


def _found(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in given.items() if _is_address(key) and value is not None}
    options = given.get("client_options")  # Google's legacy form
    if isinstance(options, Mapping) and options.get("api_endpoint"):
        found["client_options"] = options["api_endpoint"]
    return found


def _is_address(key: str) -> bool:
    return ADDRESS_KEY.fullmatch(key) is not None


def _checked(address: object, *, path: str) -> str:
    if not isinstance(address, str) or not re.match(r"https?://[^/\s]", address.strip()):
        raise ConfigError(
            f"{path} is {address!r}, which is no address; write it with its scheme, "
            "such as http://127.0.0.1:8000/v1, or remove the key"
        )
    return address.strip()


def _named(address: str, name: str, known: frozenset[str]) -> Arguments:
    if "azure_endpoint" in known:  # the path decides which of the two Azure expects
        if "/openai" in address:
            return {"base_url": address, "azure_endpoint": None}
        return {"azure_endpoint": address, "base_url": None}
    own = sorted(one for one in known if _is_address(one))
    return {next((one for one in (*ADDRESS_NAMES, *own) if one in known), name): address}
