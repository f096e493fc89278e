"""JSON paths such as `values.messages[-1].content`, with which clients select a part."""

import re
from typing import Any

from deerflow.errors import InvalidInputError

Path = tuple[str | int, ...]

_WHOLE = re.compile(r"[^.\[\]]+(\[-?\d{1,6}\])*(\.[^.\[\]]+(\[-?\d{1,6}\])*)*")
_STEP = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")


def parse_path(text: str) -> Path:
    """Parse a path into its steps; `InvalidInputError` if it is malformed."""
    if len(text) > 256 or _WHOLE.fullmatch(text) is None:
        raise InvalidInputError(f"'{text[:80]}' is no path; write it like values.messages[-1].content")
    return tuple(name or int(index) for name, index in _STEP.findall(text))


def value_at(whole: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for step in path:
        try:
            whole = whole[step]
        except (KeyError, IndexError, TypeError):
            return None
    return whole
