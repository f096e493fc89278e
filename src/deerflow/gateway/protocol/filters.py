"""Filters for the events of a thread that a reader requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deerflow.errors import InvalidInputError
from deerflow.gateway.protocol.events import Namespace, ProtocolEvent

CHANNELS = (
    "values",
    "updates",
    "messages",
    "tools",
    "lifecycle",
    "input",
    "checkpoints",
    "tasks",
    "custom",
)
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
