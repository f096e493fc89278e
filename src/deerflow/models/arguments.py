"""Converts one entry of `models:` to the constructor arguments of its class."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import AliasChoices

from deerflow.config import ModelSettings
from deerflow.errors import ConfigError
from deerflow.models.server_address import SELF_HOSTED, default_address, has_address, with_one_name
from deerflow.models.thinking import Arguments, merged, thinking_arguments

COMPATIBLE = "deerflow.models.compatible:CompatibleChatOpenAI"
KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "deerflow.models.patched_deepseek": ("DEEPSEEK_API_KEY",),
    "deerflow.models.patched_minimax": ("MINIMAX_API_KEY",),
    "deerflow.models.patched_stepfun": ("STEPFUN_API_KEY",),
    "deerflow.models.patched_mimo": ("MIMO_API_KEY",),
    "deerflow.models.vllm_provider": ("VLLM_API_KEY",),
    "deerflow.models.mindie_provider": ("MINDIE_API_KEY",),
    "langchain_deepseek": ("DEEPSEEK_API_KEY",),
    "langchain_anthropic": ("ANTHROPIC_API_KEY",),
    "deerflow.models.claude_provider": ("ANTHROPIC_API_KEY",),
    "langchain_google_genai": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "langchain_openai:AzureChatOpenAI": ("AZURE_OPENAI_API_KEY",),
}
"""Environment variables with a provider's key, read if the entry has none."""
DEFAULTS: Mapping[str, Arguments] = {
    "deerflow.models.patched_minimax": {
        "reasoning_key": "reasoning_details",
        "extra_body": {"reasoning_split": True},
    },
    "deerflow.models.patched_stepfun": {"reasoning_key": "reasoning"},
    # The SDK would retry five times for half a minute, also a quota that is used up, and nobody would see it.
    "langchain_google_genai": {"max_retries": 1},
}
"""Arguments of entries that do not set them; DeerFlow 2's own classes have these built in."""
NO_KEY = "not-needed"


def arguments_for(
    settings: ModelSettings,
    cls: type[BaseChatModel],
    *,
    is_thinking: bool,
    reasoning_effort: str | None,
    env: Mapping[str, str],
) -> Arguments:
    """Return the constructor arguments of `cls`; raise ConfigError for keys that it does not accept."""
    package = settings.use.partition(":")[0]
    known = known_keys(cls)
    entry = f"models[{settings.name}]"
    # Token counts are enabled wherever a class supports them: a run's usage is recorded from them.
    counting = {"stream_usage": True} if "stream_usage" in known else {}
    given = merged(DEFAULTS.get(package, {}), counting)
    extra = with_one_name(settings.model_extra or {}, known, entry=entry)
    given = merged(given, {**extra, **_listed(settings, known)})
    thinking = thinking_arguments(settings, is_on=is_thinking)
    given = merged(given, with_one_name(thinking, known, entry=entry))
    _set_effort(given, reasoning_effort, settings, known)
    _find_address(given, cls, known, settings, env)
    if "extra_body" in known and "thinking" in given and "thinking" not in known:
        given = merged(given, {"extra_body": {"thinking": given.pop("thinking")}})
    _find_key(given, cls, known, settings.use, env)
    _tidy_keys(given, settings)
    _refuse_unknown(given, cls, known, settings)
    return given


def known_keys(cls: type[BaseChatModel]) -> frozenset[str]:
    """Return all argument names that the constructor of `cls` accepts."""
    names: set[str] = set()
    for name, field in cls.model_fields.items():
        names.add(name)
        for alias in (field.alias, field.validation_alias):
            if isinstance(alias, AliasChoices):
                names.update(choice for choice in alias.choices if isinstance(choice, str))
            elif isinstance(alias, str):
                names.add(alias)
    return frozenset(names)


def _listed(settings: ModelSettings, known: frozenset[str]) -> Arguments:
    """Return the keys of `ModelSettings` that the class accepts too."""
    wanted: dict[str, Any] = {
        "stream_chunk_timeout": getattr(settings, "stream_chunk_timeout", None),
        "transport": settings.transport,
        "model" if "model" in known else "model_name": settings.model,
    }
    listed = {key: value for key, value in wanted.items() if key in known and value is not None}
    for key in ("use_responses_api", "output_version"):
        value = getattr(settings, key, None)
        if value is not None:
            listed[key] = value
    return listed


def _set_effort(given: Arguments, wish: str | None, settings: ModelSettings, known: frozenset[str]) -> None:
    if not settings.supports_reasoning_effort:
        given.pop("reasoning_effort", None)
    elif wish:
        given["effort" if "reasoning_effort" not in known and "effort" in known else "reasoning_effort"] = (
            wish
        )


def _find_address(
    given: Arguments,
    cls: type[BaseChatModel],
    known: frozenset[str],
    settings: ModelSettings,
    env: Mapping[str, str],
) -> None:
    """Set the server address if the entry does not."""
    if has_address(given):
        return
    address = default_address(settings.use, is_openai=_is_openai(cls), env=env)
    if address is not None:
        given.update(with_one_name({"base_url": address}, known, entry=f"models[{settings.name}]"))
    elif settings.use.partition(":")[0] in SELF_HOSTED:
        raise ConfigError(
            f"models[{settings.name}]: {settings.use} needs `base_url`, the address of your server, "
            "such as http://127.0.0.1:8000/v1"
        )


def _is_openai(cls: type[BaseChatModel]) -> bool:
    """Return whether a class reads OpenAI's variables; others only share OpenAI's base classes."""
    return any(one.__name__ == "ChatOpenAI" for one in cls.__mro__)


def _find_key(
    given: Arguments, cls: type[BaseChatModel], known: frozenset[str], use: str, env: Mapping[str, str]
) -> None:
    name = next((one for one in ("api_key", "google_api_key") if one in known), None)
    if name is None or any(given.get(one) for one in given if one.endswith("api_key")):
        return
    usual = ("OPENAI_API_KEY",) if _is_openai(cls) else ()
    variables = KEY_VARIABLES.get(use, KEY_VARIABLES.get(use.partition(":")[0], usual))
    key = next((env[variable] for variable in variables if env.get(variable)), None)
    if key is None and _is_openai(cls) and given.get("base_url"):
        key = NO_KEY  # self-hosted servers need no key, but the SDK requires one
    if key is not None:
        given[name] = key


def _tidy_keys(given: Arguments, settings: ModelSettings) -> None:
    """Strip whitespace from keys; reject characters that are invalid in a header: every call would fail."""
    for name, value in given.items():
        if name.endswith("api_key") and isinstance(value, str):
            given[name] = value.strip()
            if not (given[name].isascii() and given[name].isprintable()):
                raise ConfigError(
                    f"models[{settings.name}].{name} is no key: it has characters that keys do not have, "
                    "such as a line break or the words of a placeholder; put the provider's key there"
                )


def _refuse_unknown(
    given: Arguments, cls: type[BaseChatModel], known: frozenset[str], settings: ModelSettings
) -> None:
    if cls.model_config.get("extra") == "allow":
        return
    unknown = []
    for key in given:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            unknown.append(f"{key} (did you mean {close[0]}?)" if close else key)
    if unknown:
        hint = " Keys of the request body go under `extra_body:`." if "extra_body" in known else ""
        raise ConfigError(
            f"models[{settings.name}]: {settings.use} does not know {', '.join(sorted(unknown))}.{hint}"
        )
