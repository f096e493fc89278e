"""Names keys of `config.yaml` that change nothing, where they stand and what was probably meant."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from deerflow.config.check import dotted
from deerflow.config.describe import fields_at
from deerflow.config.effect import WAITING
from deerflow.config.section import is_listed
from deerflow.config.settings import Settings
from deerflow.config.yaml_file import KeyPath


@dataclass(frozen=True, slots=True)
class UnusedKey:
    """A key that changes nothing."""

    path: KeyPath
    line: int | None
    is_known: bool
    """It is a setting of ours that nothing reads in this version."""
    meant: str | None
    """The full name of the setting that was probably meant."""

    @property
    def key(self) -> str:
        """The key as people write it: `title.max_wrds`."""
        return dotted(self.path)

    def __str__(self) -> str:
        notes = [f"line {self.line}"] if self.line else []
        notes += [f"did you mean {self.meant}?"] if self.meant else []
        return f"{self.key} ({'; '.join(notes)})" if notes else self.key


def unused_keys(paths: Iterable[KeyPath], line_of: Callable[[KeyPath], int | None]) -> list[UnusedKey]:
    """Return the keys at these paths of `Settings` as they are named to people."""
    return [_unused(path, line_of(path)) for path in paths]


def _unused(path: KeyPath, line: int | None) -> UnusedKey:
    if is_listed(path, WAITING):
        return UnusedKey(path, line, is_known=True, meant=None)
    above = path[:-1]
    names = [name for name in fields_at(Settings, above) if not is_listed((*above, name), WAITING)]
    close = get_close_matches(str(path[-1]), names, n=1)
    return UnusedKey(path, line, is_known=False, meant=dotted((*above, close[0])) if close else None)
