"""Arguments that enable or disable a model's thinking."""

from collections.abc import Mapping
from typing import Any

from deerflow.config import ModelSettings

Arguments = dict[str, Any]
NESTED = ("extra_body", "model_kwargs", "chat_template_kwargs")
"""Arguments that hold further arguments."""
SWITCHES = ("enable_thinking", "thinking")


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
