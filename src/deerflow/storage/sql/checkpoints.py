"""The rows of checkpoints: where they are put, found, walked and deleted.

Everything here runs inside a transaction of the engine and knows no serializer.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import ormsgpack

from deerflow.errors import StaleAttemptError
from deerflow.storage.database import Database
from deerflow.storage.sql.codec import pack, unpack

Id = bytes
"""A UUID as its 16 bytes; any other id as its text, filled up to more than that."""
Write = tuple[int, str, bytes]
"""Index, channel and serialized value of one write."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAMES_END = "\x1f"
_UUID_BYTES = 16
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Place:
    """One checkpoint of one chain; without an id, the newest."""

    thread_id: str
    ns: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint that is to be stored."""

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
    """A checkpoint as stored, with its large values and the writes that wait on it."""

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
    """Return the id behind `compact`."""
    if len(stored) != _UUID_BYTES:
        return stored.rstrip(b"\x00").decode()
    text = stored.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_fence(db: Database, fence: tuple[str, int] | None) -> None:
    """Refuse the writes of an attempt that is over."""
    if fence is None:
        return
    sql = (
        "SELECT 1 FROM runs WHERE id = ? AND attempt = ? AND status IN ('pending', 'running') "
        f"{db.dialect.shared}"
    )
    if db.execute(sql, fence).fetchone() is None:
        raise StaleAttemptError(f"attempt {fence[1]} of run {fence[0]} may write no more")


def chain_key(db: Database, place: Place) -> int | None:
    """Return the key of a chain, None when there is none."""
    row = db.execute(
        "SELECT key FROM chains WHERE thread_id = ? AND ns = ?", (place.thread_id, place.ns)
    ).fetchone()
    return None if row is None else int(row[0])


def ensure_chain(db: Database, place: Place) -> int:
    """Return the key of a chain, made now when there was none."""
    key = chain_key(db, place)
    if key is not None:
        return key
    made = db.execute(
        "INSERT INTO chains (thread_id, ns) VALUES (?, ?) ON CONFLICT (thread_id, ns) DO NOTHING "
        "RETURNING key",
        (place.thread_id, place.ns),
    ).fetchone()
    # Without a key another process made it in between.
    return ensure_chain(db, place) if made is None else int(made[0])


def put(db: Database, new: NewCheckpoint) -> None:
    """Store a checkpoint; one with the same id is replaced."""
    assert new.place.id is not None
    chain = ensure_chain(db, new.place)
    for digest, body in new.blobs:
        if not _has_blob(db, chain, digest):
            db.execute(
                "INSERT INTO blobs (chain, digest, body) VALUES (?, ?, ?) "
                "ON CONFLICT (chain, digest) DO NOTHING",
                (chain, digest, pack(body)),
            )
    db.execute(
        "INSERT INTO checkpoints (chain, id, parent, shape, run, blobs, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (chain, id) DO UPDATE SET parent = excluded.parent, shape = excluded.shape, "
        "run = excluded.run, blobs = excluded.blobs, body = excluded.body",
        (
            chain,
            compact(new.place.id),
            compact(new.parent) if new.parent else None,
            _shape_key(db, new.channels),
            compact(new.run_id) if new.run_id else None,
            b"".join(digest for digest, _ in new.blobs) or None,
            pack(new.body),
        ),
    )


def put_writes(
    db: Database, place: Place, task_id: str, path: str, writes: Sequence[Write], *, replace: bool
) -> None:
    """Store the writes of one task in one row; of two with one index the older stays, unless `replace`."""
    assert place.id is not None
    chain, checkpoint, task = ensure_chain(db, place), compact(place.id), compact(task_id)
    old = db.execute(
        "SELECT key, body FROM writes WHERE chain = ? AND checkpoint = ? AND task = ?",
        (chain, checkpoint, task),
    ).fetchone()
    if old is None:
        db.execute(
            "INSERT INTO writes (chain, checkpoint, task, path, body) VALUES (?, ?, ?, ?, ?)",
            (chain, checkpoint, task, path, pack(ormsgpack.packb(writes))),
        )
        return
    merged = {write[0]: write for write in unpack_writes(old[1])}
    for write in writes:
        if replace or write[0] not in merged:
            merged[write[0]] = write
    body = pack(ormsgpack.packb(list(merged.values())))
    db.execute("UPDATE writes SET body = ? WHERE key = ?", (body, old[0]))


def unpack_writes(stored: bytes) -> list[Write]:
    """Return the writes of one row."""
    return [(index, channel, value) for index, channel, value in ormsgpack.unpackb(unpack(stored))]


def get(db: Database, place: Place) -> CheckpointRow | None:
    """Return one checkpoint, the newest of its chain when the place has no id."""
    chain = chain_key(db, place)
    if chain is None:
        return None
    which, values = ("AND id = ?", [compact(place.id)]) if place.id else ("ORDER BY id DESC LIMIT 1", [])
    row = db.execute(
        f"SELECT key, chain, id, parent, blobs, body FROM checkpoints WHERE chain = ? {which}",
        (chain, *values),
    ).fetchone()
    return None if row is None else complete(db, row, place)


def complete(
    db: Database, row: tuple[int, int, Id, Id | None, bytes | None, bytes], place: Place
) -> CheckpointRow:
    """Return a row of the table with its large values and its writes."""
    key, chain, stored_id, parent, digests, body = row
    return CheckpointRow(
        key=key,
        place=Place(place.thread_id, place.ns, spread(stored_id)),
        parent=spread(parent) if parent is not None else None,
        body=body,
        blobs=[blob(db, chain, digest) for digest in split_digests(digests)],
        writes=writes_of(db, chain, stored_id),
    )


def blob(db: Database, chain: int, digest: bytes) -> bytes:
    """Return a large value as stored."""
    (body,) = db.execute("SELECT body FROM blobs WHERE chain = ? AND digest = ?", (chain, digest)).fetchone()
    return bytes(body)


def split_digests(joined: bytes | None) -> list[bytes]:
    """Return the digests of a checkpoint's large values."""
    joined = joined or b""
    return [joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)]


def writes_of(db: Database, chain: int, checkpoint: Id) -> list[tuple[str, str, list[Write]]]:
    """Return the writes that wait on a checkpoint, in the order they apply."""
    rows = db.execute(
        "SELECT path, task, body FROM writes WHERE chain = ? AND checkpoint = ?", (chain, checkpoint)
    ).fetchall()
    return ordered_writes(rows)


def ordered_writes(
    rows: Iterable[tuple[str, Id, bytes]], channels: Collection[str] | None = None
) -> list[tuple[str, str, list[Write]]]:
    """Return the writes of rows, of some channels or all, in the order they apply."""
    found = []
    for path, task, body in rows:
        writes = [write for write in unpack_writes(body) if channels is None or write[1] in channels]
        if writes:
            found.append((path, spread(task), sorted(writes, key=_index)))
    return sorted(found, key=_path_and_task)


def stored_values(db: Database, chain: int, checkpoint: Id) -> tuple[bytes, list[bytes]]:
    """Return a checkpoint's body and large values as stored."""
    body, digests = db.execute(
        "SELECT body, blobs FROM checkpoints WHERE chain = ? AND id = ?", (chain, checkpoint)
    ).fetchone()
    return body, [blob(db, chain, digest) for digest in split_digests(digests)]


def chains_of(db: Database, thread_id: str) -> list[tuple[int, str, str]]:
    """Return key, thread and namespace of all chains of a thread and its sub-threads."""
    # `0` follows `/` in the alphabet: one range of the index holds every `thread/…`.
    return db.execute(
        "SELECT key, thread_id, ns FROM chains WHERE thread_id = ? OR (thread_id > ? AND thread_id < ?)",
        (thread_id, f"{thread_id}/", f"{thread_id}0"),
    ).fetchall()


def delete_chains(db: Database, thread_id: str) -> None:
    """Delete all checkpoints of a thread and its sub-threads."""
    for chain, _, _ in chains_of(db, thread_id):
        delete_chain(db, chain)


def delete_chain(db: Database, chain: int) -> None:
    """Delete one chain with all it holds."""
    for table in ("checkpoints", "writes", "blobs"):
        db.execute(f"DELETE FROM {table} WHERE chain = ?", (chain,))
    db.execute("DELETE FROM chains WHERE key = ?", (chain,))


def delete_unused_blobs(db: Database, chain: int) -> None:
    """Delete the large values that no checkpoint of the chain holds any more."""
    rows = db.execute("SELECT blobs FROM checkpoints WHERE chain = ? AND blobs IS NOT NULL", (chain,))
    used = {digest for (joined,) in rows for digest in split_digests(joined)}
    for key, digest in db.execute("SELECT key, digest FROM blobs WHERE chain = ?", (chain,)).fetchall():
        if digest not in used:
            db.execute("DELETE FROM blobs WHERE key = ?", (key,))


def _has_blob(db: Database, chain: int, digest: bytes) -> bool:
    sql = "SELECT 1 FROM blobs WHERE chain = ? AND digest = ?"
    return db.execute(sql, (chain, digest)).fetchone() is not None


def _shape_key(db: Database, channels: Iterable[str]) -> int:
    names = _NAMES_END.join(sorted(channels))
    row = db.execute("SELECT key FROM shapes WHERE names = ?", (names,)).fetchone()
    if row is not None:
        return int(row[0])
    made = db.execute(
        "INSERT INTO shapes (names) VALUES (?) ON CONFLICT (names) DO NOTHING RETURNING key", (names,)
    ).fetchone()
    return _shape_key(db, channels) if made is None else int(made[0])


def split_names(names: str) -> frozenset[str]:
    """Return the channels of a shape."""
    return frozenset(names.split(_NAMES_END))


def _index(write: Write) -> int:
    return write[0]


def _path_and_task(group: tuple[str, str, list[Write]]) -> tuple[str, str]:
    return group[0], group[1]
