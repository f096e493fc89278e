"""Types and encodings of checkpoint rows, independent of the database: places, ids, writes, digests."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import ormsgpack

from deerflow.storage.sql.codec import unpack

Id = bytes
"""A UUID as its 16 bytes; any other id as its text, padded to more than 16 bytes."""
Write = tuple[int, str, bytes]
"""Index, channel and serialized value of one write."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAMES_END = "\x1f"
_UUID_BYTES = 16
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Identifies one checkpoint of one chain; without an id, the newest."""

    thread_id: str
    ns: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to be stored."""

    place: Place
    parent: str | None
    run_id: str | None
    channels: Iterable[str]
    """The channels it holds values of."""
    blobs: Sequence[tuple[bytes, bytes]]
    """Digest and bytes of its large values."""
    body: bytes


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A stored checkpoint with its large values and pending writes."""

    key: int
    place: Place
    parent: str | None
    body: bytes
    blobs: list[bytes]
    writes: list[tuple[str, str, list[Write]]]
    """Path, task and writes of each task, in the order in which they apply."""


def compact(text: str) -> Id:
    """Return an id as stored."""
    if _UUID.fullmatch(text):
        return bytes.fromhex(text.replace("-", ""))
    return text.encode().ljust(_UUID_BYTES, b"\x00") + b"\x00"


def spread(stored: Id) -> str:
    """Return the id that `compact` encoded."""
    if len(stored) != _UUID_BYTES:
        return stored.rstrip(b"\x00").decode()
    text = stored.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def unpack_writes(stored: bytes) -> list[Write]:
    """Return the writes of one row."""
    return [(index, channel, value) for index, channel, value in ormsgpack.unpackb(unpack(stored))]


def ordered_writes(
    rows: Iterable[tuple[str, Id, bytes]], channels: Collection[str] | None = None
) -> list[tuple[str, str, list[Write]]]:
    """Return the writes of rows, of all or some channels, in the order in which they apply."""
    found = []
    for path, task, body in rows:
        writes = [write for write in unpack_writes(body) if channels is None or write[1] in channels]
        if writes:
            found.append((path, spread(task), sorted(writes, key=_index)))
    return sorted(found, key=_path_and_task)


def split_digests(joined: bytes | None) -> list[bytes]:
    """Return the digests of a checkpoint's large values."""
    joined = joined or b""
    return [joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)]


def join_names(channels: Iterable[str]) -> str:
    """Return a set of channels as stored in the table `shapes`."""
    return _NAMES_END.join(sorted(channels))


def split_names(names: str) -> frozenset[str]:
    """Return the set of channels that `join_names` encoded."""
    return frozenset(names.split(_NAMES_END))


def _index(write: Write) -> int:
    return write[0]


def _path_and_task(group: tuple[str, str, list[Write]]) -> tuple[str, str]:
    return group[0], group[1]
