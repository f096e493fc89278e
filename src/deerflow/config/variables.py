"""Substitutes environment variables for `$VAR` in settings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deerflow.config.yaml_file import KeyPath

_INSIDE = re.compile(r"\$\{?([A-Z][A-Z0-9_]{2,})\b", re.ASCII)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unset:
    """A path in the settings that uses an unset variable."""

    path: KeyPath
    variable: str


def variable_in(value: object) -> str | None:
    """Return the variable's name if `value` is exactly `$NAME` or `${NAME}`."""
    found = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return found and (found[1] or found[2])


def substitute(value: Any, env: Mapping[str, str]) -> tuple[Any, list[Unset]]:
    """Return `value` with every variable replaced, an unset one by an empty text, and the unset variables."""
    unset: list[Unset] = []
    return _substitute(value, env, (), unset), unset


def _substitute(value: Any, env: Mapping[str, str], path: KeyPath, unset: list[Unset]) -> Any:
    match value:
        case dict():
            return {key: _substitute(inner, env, (*path, key), unset) for key, inner in value.items()}
        case list():
            return [_substitute(inner, env, (*path, index), unset) for index, inner in enumerate(value)]
    variable = variable_in(value)
    if variable is None:
        return value
    if variable not in env:
        unset.append(Unset(path, variable))
    return env.get(variable, "")


def variables_inside(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield path and variable name of every text that contains a variable, which is not replaced there."""
    match value:
        case dict():
            for key, inner in value.items():
                yield from variables_inside(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from variables_inside(inner, (*path, index))
        case str() if variable_in(value) is None and (found := _INSIDE.search(value)):
            yield path, found[1]


def restore(value: Any, raw: Any, env: Mapping[str, str]) -> Any:
    """Return `value` with each text that comes from a variable in `raw` replaced by that variable."""
    match value, raw:
        case dict(), dict():
            return {key: restore(inner, raw.get(key), env) for key, inner in value.items()}
        case list(), list():
            rest = [None] * (len(value) - len(raw))
            return [restore(inner, old, env) for inner, old in zip(value, [*raw, *rest], strict=False)]
    variable = variable_in(raw)
    return raw if variable is not None and value == env.get(variable, "") else value
