"""Converts one entry of `models:` to the constructor arguments of its class."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import AliasChoices

from deerflow.config import ModelSettings
from deerflow.errors import ConfigError
from deerflow.models.providers import ClassDefaults, class_defaults
from deerflow.models.server_address import Arguments, has_address, with_one_name

NO_KEY = "not-needed"
NESTED = ("extra_body", "model_kwargs", "chat_template_kwargs")
"""Arguments that hold further arguments."""
SWITCHES = ("enable_thinking", "thinking")


def arguments_for(
    settings: ModelSettings,
    cls: type[BaseChatModel],
    *,
    is_thinking: bool,
    reasoning_effort: str | None,
    env: Mapping[str, str],
) -> Arguments:
    """Return the constructor arguments of `cls`; raise ConfigError for keys that it does not accept."""
    defaults = class_defaults(settings.use, is_openai=_is_openai(cls))
    known = known_keys(cls)
    entry = f"models[{settings.name}]"
    # Token counts are enabled wherever a class supports them: a run's usage is recorded from them.
    counting = {"stream_usage": True} if "stream_usage" in known else {}
    given = merged(defaults.arguments, counting)
    extra = with_one_name(settings.model_extra or {}, known, entry=entry)
    given = merged(given, {**extra, **_listed(settings, known)})
    thinking = thinking_arguments(settings, is_on=is_thinking)
    given = merged(given, with_one_name(thinking, known, entry=entry))
    _set_effort(given, reasoning_effort, settings, known)
    if not has_address(given):
        given.update(with_one_name(_default_address(defaults, settings, env), known, entry=entry))
    if "extra_body" in known and "thinking" in given and "thinking" not in known:
        given = merged(given, {"extra_body": {"thinking": given.pop("thinking")}})
    _find_key(given, known, defaults, is_openai=_is_openai(cls), env=env)
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


def _set_effort(given: Arguments, effort: str | None, settings: ModelSettings, known: frozenset[str]) -> None:
    if not settings.supports_reasoning_effort:
        given.pop("reasoning_effort", None)
    elif effort:
        name = "effort" if "reasoning_effort" not in known and "effort" in known else "reasoning_effort"
        given[name] = effort


def _default_address(
    defaults: ClassDefaults, settings: ModelSettings, env: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the server address for an entry that sets none; empty leaves the choice to the class."""
    variables = (env.get(name, "").strip() for name in defaults.address_variables)
    address = defaults.address or next(filter(None, variables), None)
    if address is None and defaults.needs_address:
        raise ConfigError(
            f"models[{settings.name}]: {settings.use} needs `base_url`, the address of your server, "
            "such as http://127.0.0.1:8000/v1"
        )
    return {} if address is None else {"base_url": address}


def _is_openai(cls: type[BaseChatModel]) -> bool:
    """Return whether a class reads OpenAI's variables; others only share OpenAI's base classes."""
    return any(one.__name__ == "ChatOpenAI" for one in cls.__mro__)


def _find_key(
    given: Arguments,
    known: frozenset[str],
    defaults: ClassDefaults,
    *,
    is_openai: bool,
    env: Mapping[str, str],
) -> None:
    name = next((one for one in ("api_key", "google_api_key") if one in known), None)
    if name is None or any(given.get(one) for one in given if one.endswith("api_key")):
        return
    key = next((env[variable] for variable in defaults.key_variables if env.get(variable)), None)
    if key is None and is_openai and given.get("base_url"):
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


def thinking_arguments(settings: ModelSettings, *, is_on: bool) -> Arguments:
    """Return the arguments that enable or disable the model's thinking, according to its settings."""
    enabled = dict(settings.when_thinking_enabled or {})
    short_form: Mapping[str, Any] | None = getattr(settings, "thinking", None)
    if short_form:
        enabled["thinking"] = {**(enabled.get("thinking") or {}), **short_form}
    if is_on:
        return enabled
    if settings.when_thinking_disabled is not None:
        return dict(settings.when_thinking_disabled)
    return switched_off(enabled)


def switched_off(enabled: Mapping[str, Any]) -> Arguments:
    """Return arguments that disable thinking, derived from those that enable it where the form is known."""
    off: Arguments = {}
    for key, value in enabled.items():
        if key in NESTED and isinstance(value, Mapping):
            inner = switched_off(value)
            if inner:
                off[key] = inner
        elif key == "thinking" and isinstance(value, Mapping) and "type" in value:
            off[key] = {"type": "disabled"}
        elif key in SWITCHES and value is True:
            off[key] = False
    return off


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Arguments:
    """Return `base` updated with `over`; nested arguments are merged."""
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        if key in NESTED and isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result
