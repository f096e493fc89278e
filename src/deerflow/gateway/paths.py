"""Paths into JSON, such as `values.messages[-1].content`, by which clients ask for a part."""

import re
from typing import Any

from deerflow.errors import InvalidInputError

Path = tuple[str | int, ...]

_WHOLE = re.compile(r"[^.\[\]]+(\[-?\d{1,6}\])*(\.[^.\[\]]+(\[-?\d{1,6}\])*)*")
_STEP = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")


def parse_path(text: str) -> Path:
    """Return the steps of a path; `InvalidInputError` when it is none."""
    if len(text) > 256 or _WHOLE.fullmatch(text) is None:
        raise InvalidInputError(f"'{text[:80]}' is no path; write it like values.messages[-1].content")
    return tuple(name or int(index) for name, index in _STEP.findall(text))


def value_at(whole: Any, path: Path) -> Any:
    """Return what a path leads to; None where it leads nowhere."""
    for step in path:
        try:
            whole = whole[step]
        except (KeyError, IndexError, TypeError):
            return None
    return whole
