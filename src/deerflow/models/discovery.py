"""Finds models when the settings have none: by API keys in the environment, else on local servers.

One exported key or a running Ollama is enough; no settings are needed. Without either, the offline model is
used, which has no requirements.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import aiohttp

from deerflow.config import ModelSettings, install_hint
from deerflow.models.providers import LOCAL_SERVERS, PROVIDERS, LocalServer, Provider

PROBE_SECONDS = 0.3
LARGEST_LIST_BYTES = 1024 * 1024
OFFLINE = ModelSettings(
    name="offline",
    display_name="Offline",
    description="Needs no key and no network: finds, quotes and reports by fixed rules.",
    use="deerflow.models.offline:OfflineChatModel",
    model="offline",
)

Probe = Callable[[Sequence[LocalServer]], Awaitable[list[ModelSettings]]]
IsInstalled = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class UnusableKey:
    """An API key that is set for a provider whose package is not installed."""

    variable: str
    provider: str
    command: str
    """The command that installs the package."""

    @property
    def note(self) -> str:
        """A sentence for the user that names the key and the command."""
        return f"{self.variable} is set, but {self.provider} needs a package: {self.command}"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The discovered models, the default first, notes for the user, and the keys that cannot be used."""

    models: tuple[ModelSettings, ...]
    notes: tuple[str, ...] = ()
    unusable: tuple[UnusableKey, ...] = ()


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return find_spec(package) is not None


async def discover(
    env: Mapping[str, str], *, probe: Probe | None = None, is_installed: IsInstalled = is_installed
) -> Discovery:
    """Return the models that are available now, best first; never empty.

    Args:
        probe: Queries the known local servers for the models they serve; replaced in tests.
    """
    found, unusable = _by_keys(env, is_installed)
    notes = [key.note for key in unusable]
    found = found or await (probe or probe_local)(LOCAL_SERVERS)
    first: dict[str, ModelSettings] = {}
    for model in found:
        first.setdefault(model.name, model)  # two servers may serve the same model
    if not first and not unusable:
        notes.append(
            "no model can be used yet: set a key such as OPENAI_API_KEY, start a local server (Ollama), "
            "or add `models:` to config.yaml; until then the offline model answers"
        )
    return Discovery(tuple(first.values()) or (_offline(unusable),), tuple(notes), tuple(unusable))


def _offline(unusable: Sequence[UnusableKey]) -> ModelSettings:
    """Return the settings of the offline model, including the unusable keys."""
    keys = [(key.variable, key.provider, key.command) for key in unusable]
    return OFFLINE.model_copy(update={"unusable_keys": keys}) if keys else OFFLINE


def _by_keys(
    env: Mapping[str, str], is_installed: IsInstalled
) -> tuple[list[ModelSettings], list[UnusableKey]]:
    found: list[ModelSettings] = []
    unusable: list[UnusableKey] = []
    for provider in PROVIDERS:
        variables = (f"{provider.prefix}_API_KEY", *provider.key_variables)
        variable = next((one for one in variables if env.get(one, "").strip()), None)
        if variable is None:
            continue
        package = provider.use.partition(":")[0].partition(".")[0]
        if is_installed(package):
            found.append(_entry(provider, env[variable].strip(), env))
        else:
            unusable.append(UnusableKey(variable, provider.label, install_hint(package)))
    return found, unusable


def _entry(provider: Provider, key: str, env: Mapping[str, str]) -> ModelSettings:
    model = env.get(f"{provider.prefix}_MODEL") or provider.model
    address = env.get(f"{provider.prefix}_BASE_URL") or provider.base_url
    given: dict[str, Any] = {"name": model, "display_name": f"{model} ({provider.label})", "model": model}
    where = {"base_url": address} if address else {}
    return ModelSettings.model_validate(
        {"use": provider.use, "api_key": key, **where, **given, **provider.settings}
    )


async def probe_local(servers: Sequence[LocalServer]) -> list[ModelSettings]:
    """Query the known local servers concurrently for the models they serve; only on this host."""
    timeout = aiohttp.ClientTimeout(total=3 * PROBE_SECONDS, sock_connect=PROBE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        answers = await asyncio.gather(*(_ask(http, server) for server in servers))
    return [
        _local_entry(server, model)
        for server, models in zip(servers, answers, strict=True)
        for model in models
    ]


async def _ask(http: aiohttp.ClientSession, server: LocalServer) -> list[str]:
    """Return the chat models of one server; empty when the server is not running."""
    try:
        async with http.get(server.url + server.list_path, allow_redirects=False) as response:
            if response.status != 200 or (response.content_length or 0) > LARGEST_LIST_BYTES:
                return []
            body = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return []
    listed = (body.get("data") or body.get("models")) if isinstance(body, dict) else None
    if not isinstance(listed, list):
        return []
    names = [one.get("id") or one.get("name") for one in listed if isinstance(one, dict)]
    return [name for name in names if isinstance(name, str) and name and "embed" not in name.lower()]


def _local_entry(server: LocalServer, model: str) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "name": model,
            "display_name": f"{model} ({server.label})",
            "use": "langchain_openai:ChatOpenAI",
            "model": model,
            "base_url": f"{server.url}/v1",
            "api_key": "not-needed",
        }
    )
