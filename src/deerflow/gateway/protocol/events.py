"""Events of the thread protocol, and the sequence numbers with which readers resume.

A sequence number encodes the origin of an event: the run of the thread, the entry of that run's log, and the
part of this entry. So it is the same for every reader at every time, without a second log; and it stays below
2^53, up to which JavaScript's integers are exact.
"""

from dataclasses import dataclass
from typing import Any

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
