"""Cache the messages last read from each thread, so that its next turn need not decode them again.

A conversation is stored whole only now and then; until the next time, every turn reads the same bytes. The
decoded messages are reused unless they were mutated, which a run is free to do.
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
"""Approximate memory of a message in addition to its text."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A decoded conversation."""

    stored: bytes
    messages: list[BaseMessage]
    content: bytes
    """Serialized content of all messages, to detect mutations."""

    @property
    def size(self) -> int:
        return len(self.stored) + 2 * len(self.content) + _MESSAGE_BYTES * len(self.messages)


class Recollection:
    """Caches the last conversation read of each thread, least recently used ones dropped first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._reads: OrderedDict[Hashable, _Read] = OrderedDict()

    def value(self, key: Hashable, stored: bytes, build: Callable[[bytes], Any]) -> Any:
        """Return what `build` makes of stored bytes, or the cached result for the same bytes.

        Args:
            key: Owner of the bytes: other owners of equal bytes get their own objects.
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
    """Return the cache entry for a value; None unless it is a conversation with detectable mutations."""
    if not isinstance(value, _DeltaSnapshot) or not isinstance(value.value, list):
        return None
    content = _content(value.value)
    return None if content is None else _Read(stored, value.value, content)


def _content(messages: list[Any]) -> bytes | None:
    """Return the serialized content of messages, to compare; None if it is not plain data."""
    try:
        return ormsgpack.packb([message.__dict__ for message in messages])
    except (AttributeError, TypeError, ValueError):
        return None
