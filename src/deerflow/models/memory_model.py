"""Builds the entry of a memory model that is configured outside `models:`, in short form."""

from pydantic import ValidationError

from deerflow.config import ModelSettings
from deerflow.config.memory import MemoryModelSettings
from deerflow.errors import ConfigError
from deerflow.models.providers import PROVIDERS, Provider
from deerflow.models.server_address import has_address


def own_model(settings: MemoryModelSettings, *, name: str, key: str) -> ModelSettings:
    """Return the equivalent entry of `models:`.

    Args:
        name: The model's name in the metrics.
        key: The path of `settings` in the settings, for messages.
    """
    provider = _provider(settings.provider, key)
    default = None if has_address(settings.handed_on) else provider.base_url
    given = {
        **settings.handed_on,
        "base_url": settings.base_url or default,
        "api_key": settings.api_key,
        "temperature": settings.temperature,
    }
    entry = {
        "name": name,
        "use": provider.use,
        "model": settings.model or provider.model,
        **{part: value for part, value in given.items() if value is not None},
    }
    try:
        return ModelSettings.model_validate(entry)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{key}.{place}: {wrong['msg']}") from error


def _provider(name: str | None, key: str) -> Provider:
    """Return a provider by its name; OpenAI, and so any compatible server, if there is no name."""
    if name is None:
        return PROVIDERS[0]
    for provider in PROVIDERS:
        if name.casefold() in (provider.label.casefold(), provider.prefix.casefold()):
            return provider
    known = ", ".join(provider.label for provider in PROVIDERS)
    raise ConfigError(f"{key}.provider is '{name}'; allowed: {known}")
