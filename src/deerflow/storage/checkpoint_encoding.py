"""Checkpoints and writes as bytes: ids, digests, and positional msgpack lists instead of repeated keys."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from deerflow.storage.encoding import decompress
from deerflow.storage.langgraph_private import DELTA_COUNTERS, StrictSerializer

Id = bytes
"""A UUID as its 16 bytes; any other id as its text, padded to more than 16 bytes."""
Write = tuple[int, str, bytes]
"""Index, channel and serialized value of one write."""
TaskWrites = tuple[str, str, list[Write]]
"""Path, task and writes of one task."""

LARGE_BYTES = 512
"""Values above this many bytes are stored once per chain, by their digest."""
DIGEST_BYTES = 16
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID_BYTES = 16
_NAME_SEPARATOR = "\x1f"
_PLAIN = StrictSerializer()
"""Reads metadata and names of channels, which are plain data."""


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Identifies one checkpoint of one chain; without an id, the newest."""

    thread_id: str
    ns: str
    id: str | None = None

    def config(self) -> RunnableConfig:
        """Return LangGraph's config that identifies the checkpoint."""
        names = {"thread_id": self.thread_id, "checkpoint_ns": self.ns, "checkpoint_id": self.id}
        return {"configurable": names}


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A stored checkpoint with its large values and pending writes."""

    key: int
    ref: CheckpointRef
    parent: str | None
    body: bytes
    blobs: list[bytes]
    writes: list[TaskWrites]
    """In the order in which they apply."""


@dataclass(slots=True)
class RawHistory:
    """What one delta channel is rebuilt from, as stored."""

    writes: list[tuple[str, bytes]] = field(default_factory=list)
    """Task and value, oldest first."""
    seed: tuple[bytes, list[bytes]] | None = None
    """Body and large values of the nearest ancestor that holds the channel's value."""


def encode_id(text: str) -> Id:
    """Return an id as stored."""
    if _UUID.fullmatch(text):
        return bytes.fromhex(text.replace("-", ""))
    return text.encode().ljust(_UUID_BYTES, b"\x00") + b"\x00"


def decode_id(stored: Id) -> str:
    """Return the id that `encode_id` encoded."""
    if len(stored) != _UUID_BYTES:
        return stored.rstrip(b"\x00").decode()
    text = stored.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def encode_channel_set(channels: Iterable[str]) -> str:
    """Return a set of channels as stored in the table `channel_sets`."""
    return _NAME_SEPARATOR.join(sorted(channels))


def decode_channel_set(names: str) -> frozenset[str]:
    """Return the set of channels that `encode_channel_set` encoded."""
    return frozenset(names.split(_NAME_SEPARATOR))


def split_digests(joined: bytes | None) -> list[bytes]:
    """Return the digests of a checkpoint's large values."""
    joined = joined or b""
    return [joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)]


def decode_writes(stored: bytes) -> list[Write]:
    """Return the writes of one row."""
    return [(index, channel, value) for index, channel, value in ormsgpack.unpackb(decompress(stored))]


def ordered_writes(
    rows: Iterable[tuple[str, Id, bytes]], channels: Collection[str] | None = None
) -> list[TaskWrites]:
    """Return the writes of rows, of all or some channels, in the order in which they apply."""
    found = []
    for path, task, body in rows:
        writes = [write for write in decode_writes(body) if channels is None or write[1] in channels]
        if writes:
            found.append((path, decode_id(task), sorted(writes, key=lambda write: write[0])))
    return sorted(found, key=lambda group: group[:2])


def encode_writes(serde: SerializerProtocol, writes: Sequence[tuple[str, Any]]) -> tuple[list[Write], bool]:
    """Return the encoded writes of a task, and whether they replace older ones."""
    encoded = [
        (WRITES_IDX_MAP.get(channel, index), channel, _dump(serde, value))
        for index, (channel, value) in enumerate(writes)
    ]
    return encoded, all(channel in WRITES_IDX_MAP for channel, _ in writes)


def encode_checkpoint(
    serde: SerializerProtocol, checkpoint: Checkpoint, metadata: Mapping[str, Any]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return a checkpoint's body and its large values by digest."""
    values = checkpoint["channel_values"]
    head = [
        metadata,
        checkpoint["v"],
        checkpoint["ts"],
        checkpoint["channel_versions"],
        checkpoint["versions_seen"],
        checkpoint.get("updated_channels"),
    ]
    body = _dump(serde, [*head, values, []])
    if len(body) <= 2 * LARGE_BYTES:
        return body, []
    dumped = {name: _dump(serde, value) for name, value in values.items()}
    large = {name: data for name, data in dumped.items() if len(data) > LARGE_BYTES}
    small = {name: value for name, value in values.items() if name not in large}
    blobs = [(hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest(), data) for data in large.values()]
    return _dump(serde, [*head, small, list(large)]), blobs


def decode_checkpoint(serde: SerializerProtocol, row: CheckpointRow) -> CheckpointTuple:
    """Return a stored checkpoint as LangGraph's `CheckpointTuple`."""
    metadata, version, ts, versions, seen, updated, values, large = _load(serde, decompress(row.body))
    for name, blob in zip(large, row.blobs, strict=True):
        values[name] = _load(serde, decompress(blob))
    assert row.ref.id is not None
    checkpoint = Checkpoint(
        v=version,
        id=row.ref.id,
        ts=ts,
        channel_values=values,
        channel_versions=versions,
        versions_seen=seen,
        updated_channels=updated,
    )
    parent = CheckpointRef(row.ref.thread_id, row.ref.ns, row.parent).config() if row.parent else None
    writes = [
        (task, channel, _load(serde, value)) for _, task, group in row.writes for _, channel, value in group
    ]
    return CheckpointTuple(row.ref.config(), checkpoint, cast(CheckpointMetadata, metadata), parent, writes)


def decode_histories(
    serde: SerializerProtocol, raw: Mapping[str, RawHistory]
) -> dict[str, DeltaChannelHistory]:
    """Return what channels are rebuilt from: a seed, if there is one, and the writes after it."""
    histories: dict[str, DeltaChannelHistory] = {}
    for channel, found in raw.items():
        writes: list[PendingWrite] = [(task, channel, _load(serde, value)) for task, value in found.writes]
        histories[channel] = {"writes": writes}
        if found.seed is not None:
            body, blobs = found.seed
            values, large = _load(serde, decompress(body))[-2:]
            if channel in large:
                values[channel] = _load(serde, decompress(blobs[large.index(channel)]))
            histories[channel]["seed"] = values[channel]
    return histories


def unheld_deltas(body: bytes) -> set[str]:
    """Return the delta channels of a stored checkpoint whose values only its ancestors hold."""
    metadata, *_, values, large = _load(_PLAIN, decompress(body))
    return set(metadata.get(DELTA_COUNTERS) or ()) - set(values) - set(large)


def large_channels(body: bytes) -> list[str]:
    """Return the channels of a stored checkpoint whose values are stored separately, in their order."""
    large: list[str] = _load(_PLAIN, decompress(body))[-1]
    return large


def _dump(serde: SerializerProtocol, value: Any) -> bytes:
    # In a list everything is msgpack, so the serializer's type needs no column.
    return serde.dumps_typed([value])[1]


def _load(serde: SerializerProtocol, data: bytes) -> Any:
    return serde.loads_typed(("msgpack", data))[0]
