"""Keeps the messages that were last read of each thread, so that its next turn need not build them again.

A conversation is stored whole now and then; until that is done again, every turn reads the same bytes. What
was built from them is handed out once more, as long as nobody changed it: a run is free to.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

MOST_BYTES = 32 * 1024 * 1024
_MESSAGE_BYTES = 2048
"""About what a message takes in memory beside its words."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A conversation as it was read."""

    stored: bytes
    messages: list[BaseMessage]
    content: bytes
    """What all of its messages held."""

    @property
    def size(self) -> int:
        return len(self.stored) + 2 * len(self.content) + _MESSAGE_BYTES * len(self.messages)


class Recollection:
    """Remembers the last conversation that was read of each thread, the latest ones of all."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._reads: OrderedDict[Hashable, _Read] = OrderedDict()

    def value(self, key: Hashable, stored: bytes, build: Callable[[bytes], Any]) -> Any:
        """Return what `build` makes of stored bytes, or made of the same bytes before.

        Args:
            key: Whose bytes they are: others who have the same get something of their own.
        """
        known = self._reads.pop(key, None)
        if known is not None:
            self._bytes -= known.size
            if known.stored != stored or known.content != _content(known.messages):
                known = None
        value = None
        if known is None:
            value = build(stored)
            known = _read(stored, value)
        if known is None:
            return value
        self._keep(key, known)
        return _DeltaSnapshot(list(known.messages))

    def _keep(self, key: Hashable, read: _Read) -> None:
        self._reads[key] = read
        self._bytes += read.size
        while self._bytes > self._most_bytes:
            _, dropped = self._reads.popitem(last=False)
            self._bytes -= dropped.size


def _read(stored: bytes, value: Any) -> _Read | None:
    """Return what can be remembered of a value: a conversation of which every change would be seen."""
    if not isinstance(value, _DeltaSnapshot) or not isinstance(value.value, list):
        return None
    content = _content(value.value)
    return None if content is None else _Read(stored, value.value, content)


def _content(messages: list[Any]) -> bytes | None:
    """Return all that messages hold, to compare; None where it is more than plain data."""
    try:
        return ormsgpack.packb([message.__dict__ for message in messages])
    except (AttributeError, TypeError, ValueError):
        return None
