"""Finds keys in `config.yaml` that have no effect, with their line and the setting probably meant."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from deerflow.config.check import dotted
from deerflow.config.describe import section_at
from deerflow.config.effect import WAITING
from deerflow.config.section import Section, is_listed, unused_paths
from deerflow.config.yaml_file import KeyPath


@dataclass(frozen=True, slots=True)
class UnusedKey:
    """A key without effect."""

    path: KeyPath
    line: int | None
    is_known: bool
    """Whether it is a known setting that has no effect in this version."""
    meant: str | None
    """The full name of the setting that was probably meant."""

    @property
    def key(self) -> str:
        """The key in dotted notation: `title.max_wrds`."""
        return dotted(self.path)

    def __str__(self) -> str:
        notes = [f"line {self.line}"] if self.line else []
        notes += [f"did you mean {self.meant}?"] if self.meant else []
        return f"{self.key} ({'; '.join(notes)})" if notes else self.key


def unused_keys(section: Section, line_of: Callable[[KeyPath], int | None]) -> list[UnusedKey]:
    """Return the keys without effect below `section`, which was read from a file."""
    kind = type(section)
    found = (_unused(kind, path, line_of(path)) for path in unused_paths(section, WAITING))
    return [unused for unused in found if unused is not None]


def _unused(section: type[Section], path: KeyPath, line: int | None) -> UnusedKey | None:
    if is_listed(path, WAITING):
        return UnusedKey(path, line, is_known=True, meant=None)
    above = path[:-1]
    around = section_at(section, above)
    names = [
        field.alias or name
        for name, field in (around.model_fields if around else {}).items()
        if not is_listed((*above, name), WAITING)
    ]
    # Open sections pass unknown keys on; only a key that closely resembles a known one is reported.
    is_open = around is not None and around.hands_on_extra_keys
    close = get_close_matches(str(path[-1]), names, n=1, cutoff=0.8 if is_open else 0.6)
    if is_open and not close:
        return None
    return UnusedKey(path, line, is_known=False, meant=dotted((*above, close[0])) if close else None)
