"""Reads which providers a `tools:` entry names, by short names or by the strings of DeerFlow 2."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from deerflow.config import ToolSettings
from deerflow.errors import ConfigError
from deerflow.web.api import KEY_VARIABLES, ProviderOptions

Mode = Literal["fallback", "parallel"]

_DEERFLOW_2 = re.compile(r"deerflow\.community\.(\w+)\.tools:\w+")
_SHORT_NAMES = {
    "ddg_search": "ddg",
    "ddgs": "ddg",
    "duckduckgo": "ddg",
    "image_search": "ddg",
    "jina_ai": "jina",
}
_KEY_OPTIONAL = frozenset({"crawl4ai", "jina"})
_OWN_KEYS = frozenset({"providers", "mode", "max_results"})


def provider_name(use: str) -> str:
    """Return the short name of a provider."""
    found = _DEERFLOW_2.fullmatch(use.strip())
    name = found[1] if found else use.strip().lower()
    return _SHORT_NAMES.get(name, name)


def configured_providers(
    entry: ToolSettings, known: Collection[str], *, default: str | None = None
) -> tuple[ProviderOptions, ...]:
    """Return the providers of an entry in their order; raise `ConfigError` for an unknown one.

    Args:
        known: The providers of this kind of tool.
        default: The provider of an entry that names none.
    """
    shared = {key: value for key, value in entry.extra_keys.items() if key not in _OWN_KEYS}
    listed = entry.extra_keys.get("providers")
    if listed is None:
        return (_checked(_own_use(entry, default, known), shared, known),)
    if not isinstance(listed, list | tuple) or not listed:
        raise ConfigError("`providers` must be a list, such as [tavily, ddg]")
    return tuple(_from_item(item, shared, known) for item in listed)


def missing_keys(
    providers: Iterable[ProviderOptions], env: Mapping[str, str]
) -> Iterator[tuple[ProviderOptions, str]]:
    """Yield the providers that will refuse requests for want of a key, each with the variable to set."""
    for provider in providers:
        is_optional = provider.name in _KEY_OPTIONAL or bool(provider.text("base_url"))
        if provider.name in KEY_VARIABLES and not is_optional and not provider.key(env):
            yield provider, KEY_VARIABLES[provider.name][0]


def configured_mode(entry: ToolSettings) -> Mode:
    """Return how several providers are used."""
    match entry.extra_keys.get("mode", "fallback"):
        case "fallback":
            return "fallback"
        case "parallel":
            return "parallel"
        case other:
            raise ConfigError(f"`mode` must be fallback or parallel, not {other!r}")


def configured_count(entry: ToolSettings, *, default: int, most: int) -> tuple[int, int]:
    """Return the default and the maximum number of results."""
    count = entry.extra_keys.get("max_results")
    if count is None:
        return default, most
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"`max_results` must be a number above 0, not {count!r}")
    return min(count, most), min(count, most)


def _own_use(entry: ToolSettings, default: str | None, known: Collection[str]) -> str:
    use = entry.use or entry.name
    is_named = _DEERFLOW_2.fullmatch(use.strip()) or provider_name(use) in known
    if is_named:
        return use
    if default is None:
        raise ConfigError(
            f"names no provider: set `use` or `providers` to some of {', '.join(sorted(known))}"
        )
    return default


def _from_item(item: Any, shared: Mapping[str, Any], known: Collection[str]) -> ProviderOptions:
    if isinstance(item, str):
        return _checked(item, shared, known)
    if isinstance(item, Mapping) and isinstance(item.get("use"), str):
        own = {key: value for key, value in item.items() if key != "use"}
        return _checked(item["use"], {**shared, **own}, known)
    raise ConfigError("each of `providers` must be a name, or have the key `use`")


def _checked(use: str, options: Mapping[str, Any], known: Collection[str]) -> ProviderOptions:
    name = provider_name(use)
    if name not in known:
        raise ConfigError(f"there is no provider {name!r}; use some of {', '.join(sorted(known))}")
    provider = ProviderOptions(name, options)
    _ = provider.seconds  # an invalid number is reported when the settings are read
    return provider
