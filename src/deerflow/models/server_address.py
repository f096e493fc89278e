"""Where a model's server is: an address in an entry wins, whichever of its names it stands under.

Provider classes call it `base_url`, `openai_api_base`, `anthropic_api_url`, `azure_endpoint` and so on.
Before an entry is merged with any default, its address gets the one name that its class takes, so that no
default and no variable of the environment can stand beside it.
"""

import re
from collections.abc import Mapping
from typing import Any

from deerflow.errors import ConfigError
from deerflow.models.thinking import Arguments

ADDRESS = re.compile(r"(?!validate_)(\w+_)?(base_url|api_base|api_url|api_endpoint|endpoint|endpoint_url)")
"""Every name under which an entry may give the address."""
NAMES_OF_CLASSES = ("base_url", "api_base", "endpoint", "endpoint_url", "api_endpoint", "api_url")
"""What classes call their address, the usual name first."""
DEFAULT_ADDRESSES: Mapping[str, str] = {
    "deerflow.models.patched_deepseek": "https://api.deepseek.com",
    "deerflow.models.patched_minimax": "https://api.minimax.io/v1",
    "deerflow.models.patched_mimo": "https://api.xiaomimimo.com/v1",
    "deerflow.models.patched_stepfun": "https://api.stepfun.com/v1",
}
"""The provider's own address, for classes of DeerFlow 2 that belong to one provider."""
ADDRESS_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "langchain_anthropic": ("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
    "deerflow.models.claude_provider": ("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
    "langchain_deepseek": ("DEEPSEEK_API_BASE", "DEEPSEEK_BASE_URL"),
    "langchain_google_genai": ("GOOGLE_GEMINI_BASE_URL",),
    "langchain_openai:AzureChatOpenAI": ("AZURE_OPENAI_ENDPOINT",),
}
"""Where the address of a provider is looked for when the entry has none; OpenAI's are `OPENAI_VARIABLES`."""
OPENAI_VARIABLES = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
SELF_HOSTED = ("deerflow.models.vllm_provider", "deerflow.models.mindie_provider")
"""Classes for servers of one's own, which have no usual address."""


def has_address(given: Mapping[str, Any]) -> bool:
    """Tell whether an entry names the address of its server."""
    return bool(_found(given))


def with_one_name(given: Mapping[str, Any], known: frozenset[str], *, entry: str) -> Arguments:
    """Return arguments whose address stands under the name that their class takes.

    Args:
        known: The names that the class takes.
        entry: Where the arguments stand in the settings, for messages.
    """
    found = _found(given)
    result = {key: value for key, value in given.items() if not (_is_address(key) and key not in found)}
    if not found:
        return result
    addresses = {name: _checked(value, place=f"{entry}.{name}") for name, value in found.items()}
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


def default_address(use: str, *, is_openai: bool, env: Mapping[str, str]) -> str | None:
    """Return where the server is when the entry does not say; None leaves it to the class."""
    package = use.partition(":")[0]
    if package in DEFAULT_ADDRESSES:
        return DEFAULT_ADDRESSES[package]
    usual = OPENAI_VARIABLES if is_openai else ()
    variables = ADDRESS_VARIABLES.get(use, ADDRESS_VARIABLES.get(package, usual))
    return next((env[name].strip() for name in variables if env.get(name, "").strip()), None)


def _found(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in given.items() if _is_address(key) and value is not None}
    options = given.get("client_options")  # Google's older form
    if isinstance(options, Mapping) and options.get("api_endpoint"):
        found["client_options"] = options["api_endpoint"]
    return found


def _is_address(key: str) -> bool:
    return ADDRESS.fullmatch(key) is not None


def _checked(address: object, *, place: str) -> str:
    if not isinstance(address, str) or not re.match(r"https?://[^/\s]", address.strip()):
        raise ConfigError(
            f"{place} is {address!r}, which is no address; write it with its scheme, "
            "such as http://127.0.0.1:8000/v1, or remove the key"
        )
    return address.strip()


def _named(address: str, name: str, known: frozenset[str]) -> Arguments:
    if "azure_endpoint" in known:  # the path tells which of the two Azure wants
        if "/openai" in address:
            return {"base_url": address, "azure_endpoint": None}
        return {"azure_endpoint": address, "base_url": None}
    own = sorted(one for one in known if _is_address(one))
    return {next((one for one in (*NAMES_OF_CLASSES, *own) if one in known), name): address}
