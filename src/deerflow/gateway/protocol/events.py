"""Events of the thread protocol, filters for them, and the sequence numbers with which readers resume.

A sequence number encodes the origin of an event: the run of the thread, the entry of that run's log, and the
part of this entry. So it is the same for every reader at every time, without a second log; and it stays below
2^53, up to which JavaScript's integers are exact.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deerflow.errors import InvalidInputError
from deerflow.runtime import to_json

Namespace = tuple[str, ...]

_RUN_BITS = 32
_ENTRY_BITS = 10
_ENDS = ("completed", "failed", "interrupted")
_MOST_ENTRIES = 1 << (_RUN_BITS - _ENTRY_BITS)
MOST_PER_ENTRY = (1 << _ENTRY_BITS) - 1
"""How many events one entry of a run's log may produce."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One event before it has a sequence number."""

    method: str
    data: Any
    namespace: Namespace = ()


@dataclass(frozen=True, slots=True)
class ProtocolEvent:
    """One event of a thread's stream."""

    seq: int
    id: str
    method: str
    namespace: Namespace
    unix_ms: int
    data: Any

    @property
    def channels(self) -> frozenset[str]:
        """The channels on which it is sent."""
        if self.method == "input.requested":
            return frozenset({"input"})
        name = self.data.get("name") if self.method == "custom" and isinstance(self.data, dict) else None
        return frozenset({self.method, f"custom:{name}"} if isinstance(name, str) else {self.method})

    @property
    def ends_run(self) -> bool:
        """Whether it is the last event of a run."""
        return self.method == "lifecycle" and not self.namespace and self.data["event"] in _ENDS

    def json(self) -> bytes:
        """Serialize the event for the wire."""
        # A client that subscribes to a namespace has its later events already when the earlier ones are
        # replayed, and drops an event whose id it knows. The last state must count again after an older one.
        known = {} if self.method == "values" and self.namespace else {"event_id": self.id}
        params = {"namespace": self.namespace, "timestamp": self.unix_ms, "data": self.data}
        return to_json({"type": "event", **known, "seq": self.seq, "method": self.method, "params": params})


def run_base(index: int) -> int:
    """Return the sequence number before all events of the thread's run at this index, from 0."""
    return index << _RUN_BITS


def run_index(seq: int) -> int:
    """Return the index of the run to which the event number `seq` belongs."""
    return seq >> _RUN_BITS


def event_seq(index: int, entry: int, part: int) -> int:
    """Return the sequence number of event `part` of an entry of a run's log."""
    return run_base(index) + (min(entry, _MOST_ENTRIES - 1) << _ENTRY_BITS) + part + 1


CHANNELS = ("values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom")
_NAMED = "custom:"
_MOST = 256
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Requested channels, namespace prefixes, depth and start."""

    channels: frozenset[str]
    prefixes: tuple[Namespace, ...] = ()
    depth: int | None = None
    since: int | None = None

    def matches(self, event: ProtocolEvent) -> bool:
        """Return whether the reader gets this event."""
        if self.channels.isdisjoint(event.channels):
            return False
        return not self.prefixes or any(self._is_below(prefix, event.namespace) for prefix in self.prefixes)

    def _is_below(self, prefix: Namespace, namespace: Namespace) -> bool:
        if len(namespace) < len(prefix):
            return False
        if self.depth is not None and len(namespace) - len(prefix) > self.depth:
            return False
        return all(map(_fits, prefix, namespace))


def parse_filter(body: Any) -> EventFilter:
    """Parse the filter in a request body; optional fields of a wrong type are ignored."""
    given = body if isinstance(body, Mapping) else {}
    return EventFilter(
        channels=_channels(given.get("channels")),
        prefixes=tuple(_prefixes(given.get("namespaces"))),
        depth=_whole(given.get("depth")),
        since=_whole(given.get("since")),
    )


def _channels(given: Any) -> frozenset[str]:
    if not isinstance(given, list) or not given:
        raise InvalidInputError("channels is required and must be a non-empty array")
    if len(given) > _MOST:
        raise InvalidInputError(f"channels has {len(given)} entries; {_MOST} are allowed")
    wrong = [str(name)[:40] for name in given if not _is_channel(name)]
    if wrong:
        allowed = f"{', '.join(CHANNELS)}, or any `{_NAMED}<name>`"
        raise InvalidInputError(
            f"channels contains unsupported entries: {', '.join(wrong[:5])}. Allowed: {allowed}."
        )
    return frozenset(given)


def _is_channel(name: Any) -> bool:
    if not isinstance(name, str):
        return False
    return name in CHANNELS or (name.startswith(_NAMED) and len(_NAMED) < len(name) <= _LONGEST_NAME)


def _prefixes(given: Any) -> Iterable[Namespace]:
    for prefix in given[:_MOST] if isinstance(given, list) else []:
        if isinstance(prefix, list) and all(isinstance(segment, str) for segment in prefix):
            yield tuple(prefix)


def _whole(given: Any) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) and given >= 0 else None


def _fits(wanted: str, segment: str) -> bool:
    return wanted == segment or (":" not in wanted and wanted == segment.partition(":")[0])
