"""Encode checkpoints and writes as bytes, and decode them.

A checkpoint is one positional msgpack list: keys would be repeated in every row.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

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

from deerflow.storage.sql.checkpoint_shapes import DIGEST_BYTES, CheckpointRow, Place, Write
from deerflow.storage.sql.checkpoint_walk import RawHistory
from deerflow.storage.sql.codec import unpack

LARGE = 512
"""Values above this many bytes are stored once per chain, by their digest."""
Recall = Callable[[str, bytes, Callable[[bytes], Any]], Any]
_COUNTERS = "counters_since_delta_snapshot"


def encode_checkpoint(
    serde: SerializerProtocol, checkpoint: Checkpoint, metadata: Mapping[str, Any]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return a checkpoint's body and its large values by digest."""
    values = checkpoint["channel_values"]
    body = _dump(serde, _document(checkpoint, metadata, values, ()))
    if len(body) <= 2 * LARGE:
        return body, []
    dumped = {name: _dump(serde, value) for name, value in values.items()}
    large = [name for name, data in dumped.items() if len(data) > LARGE]
    small = {name: value for name, value in values.items() if name not in large}
    blobs = [
        (hashlib.blake2b(dumped[name], digest_size=DIGEST_BYTES).digest(), dumped[name]) for name in large
    ]
    return _dump(serde, _document(checkpoint, metadata, small, large)), blobs


def decode_row(serde: SerializerProtocol, row: CheckpointRow) -> CheckpointTuple:
    """Return a stored checkpoint as LangGraph's `CheckpointTuple`."""
    metadata, checkpoint = _decode(serde, row.body, row.blobs)
    assert row.place.id is not None
    checkpoint["id"] = row.place.id
    parent = None if row.parent is None else config_of(Place(row.place.thread_id, row.place.ns, row.parent))
    writes = [
        (task, channel, _load(serde, value)) for _, task, group in row.writes for _, channel, value in group
    ]
    return CheckpointTuple(config_of(row.place), checkpoint, metadata, parent, writes)


def encode_writes(serde: SerializerProtocol, writes: Sequence[tuple[str, Any]]) -> tuple[list[Write], bool]:
    """Return the encoded writes of a task, and whether they replace older ones."""
    encoded = [
        (WRITES_IDX_MAP.get(channel, index), channel, _dump(serde, value))
        for index, (channel, value) in enumerate(writes)
    ]
    return encoded, all(channel in WRITES_IDX_MAP for channel, _ in writes)


def decode_histories(
    serde: SerializerProtocol, raw: Mapping[str, RawHistory], recall: Recall | None = None
) -> dict[str, DeltaChannelHistory]:
    """Return what channels are rebuilt from: a seed, if there is one, and the writes after it.

    Args:
        recall: Loads a large seed; gets its channel, its stored bytes and the function that decodes them.
    """

    def load(stored: bytes) -> Any:
        return _load(serde, unpack(stored))

    histories: dict[str, DeltaChannelHistory] = {}
    for channel, found in raw.items():
        writes: list[PendingWrite] = [(task, channel, _load(serde, value)) for task, value in found.writes]
        histories[channel] = {"writes": writes}
        if found.seed is not None:
            body, blobs = found.seed
            values, large = load(body)[-2:]
            if channel in large:
                blob = blobs[large.index(channel)]
                values[channel] = recall(channel, blob, load) if recall else load(blob)
            histories[channel]["seed"] = values[channel]
    return histories


def unheld_deltas(serde: SerializerProtocol, body: bytes) -> set[str]:
    """Return the delta channels of a stored checkpoint whose values only its ancestors hold."""
    metadata, *_, values, large = _load(serde, unpack(body))
    return set(metadata.get(_COUNTERS) or ()) - set(values) - set(large)


def large_channels(serde: SerializerProtocol, body: bytes) -> list[str]:
    """Return the channels of a stored checkpoint whose values are stored separately, in their order."""
    large: list[str] = _load(serde, unpack(body))[-1]
    return large


def config_of(place: Place) -> RunnableConfig:
    """Return the config that identifies a checkpoint."""
    return {
        "configurable": {
            "thread_id": place.thread_id,
            "checkpoint_ns": place.ns,
            "checkpoint_id": place.id,
        }
    }


def _document(
    checkpoint: Checkpoint, metadata: Mapping[str, Any], values: Mapping[str, Any], large: Iterable[str]
) -> list[Any]:
    return [
        metadata,
        checkpoint["v"],
        checkpoint["ts"],
        checkpoint["channel_versions"],
        checkpoint["versions_seen"],
        checkpoint.get("updated_channels"),
        values,
        list(large),
    ]


def _decode(
    serde: SerializerProtocol, body: bytes, blobs: Sequence[bytes]
) -> tuple[CheckpointMetadata, Checkpoint]:
    metadata, version, ts, versions, seen, updated, values, large = _load(serde, unpack(body))
    for name, blob in zip(large, blobs, strict=True):
        values[name] = _load(serde, unpack(blob))
    checkpoint = Checkpoint(
        v=version,
        id="",
        ts=ts,
        channel_values=values,
        channel_versions=versions,
        versions_seen=seen,
        updated_channels=updated,
    )
    return cast(CheckpointMetadata, metadata), checkpoint


def _dump(serde: SerializerProtocol, value: Any) -> bytes:
    # In a list everything is msgpack, so the serializer's type needs no column.
    return serde.dumps_typed([value])[1]


def _load(serde: SerializerProtocol, data: bytes) -> Any:
    return serde.loads_typed(("msgpack", data))[0]
