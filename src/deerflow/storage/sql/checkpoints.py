"""Read and write checkpoint rows.

Everything here runs inside a transaction of the engine and is independent of the serializer.
"""

from collections.abc import Iterable, Sequence

import ormsgpack

from deerflow.errors import StaleAttemptError
from deerflow.storage.database import Database
from deerflow.storage.sql.checkpoint_chains import chain_key, ensure_chain
from deerflow.storage.sql.checkpoint_shapes import (
    CheckpointRow,
    Id,
    NewCheckpoint,
    Place,
    Write,
    compact,
    join_names,
    ordered_writes,
    split_digests,
    spread,
    unpack_writes,
)
from deerflow.storage.sql.codec import pack


def check_fence(db: Database, fence: tuple[str, int] | None) -> None:
    """Raise `StaleAttemptError` if the attempt has ended."""
    if fence is None:
        return
    sql = (
        "SELECT 1 FROM runs WHERE id = ? AND attempt = ? AND status IN ('pending', 'running') "
        f"{db.dialect.shared}"
    )
    if db.execute(sql, fence).fetchone() is None:
        raise StaleAttemptError(f"attempt {fence[1]} of run {fence[0]} may write no more")


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


def has_run(db: Database, place: Place, run_id: str) -> bool:
    """Return whether a run created a checkpoint of a chain."""
    sql = "SELECT 1 FROM checkpoints WHERE chain = ? AND run = ? LIMIT 1"
    return db.execute(sql, (chain_key(db, place), compact(run_id))).fetchone() is not None


def put_writes(
    db: Database, place: Place, task_id: str, path: str, writes: Sequence[Write], *, replace: bool
) -> None:
    """Store the writes of one task in one row; for equal indexes the older write stays, unless `replace`."""
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


def newest_id(db: Database, place: Place) -> str | None:
    """Return the id of the newest checkpoint of a chain."""
    chain = chain_key(db, place)
    newest = "SELECT id FROM checkpoints WHERE chain = ? ORDER BY id DESC LIMIT 1"
    row = None if chain is None else db.execute(newest, (chain,)).fetchone()
    return None if row is None else spread(row[0])


def complete(
    db: Database, row: tuple[int, int, Id, Id | None, bytes | None, bytes], place: Place
) -> CheckpointRow:
    """Return a table row with its large values and its writes."""
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


def writes_of(db: Database, chain: int, checkpoint: Id) -> list[tuple[str, str, list[Write]]]:
    """Return the pending writes of a checkpoint, in the order in which they apply."""
    rows = db.execute(
        "SELECT path, task, body FROM writes WHERE chain = ? AND checkpoint = ?", (chain, checkpoint)
    ).fetchall()
    return ordered_writes(rows)


def stored_values(db: Database, chain: int, checkpoint: Id) -> tuple[bytes, list[bytes]]:
    """Return a checkpoint's body and large values as stored."""
    body, digests = db.execute(
        "SELECT body, blobs FROM checkpoints WHERE chain = ? AND id = ?", (chain, checkpoint)
    ).fetchone()
    return body, [blob(db, chain, digest) for digest in split_digests(digests)]


def _has_blob(db: Database, chain: int, digest: bytes) -> bool:
    sql = "SELECT 1 FROM blobs WHERE chain = ? AND digest = ?"
    return db.execute(sql, (chain, digest)).fetchone() is not None


def _shape_key(db: Database, channels: Iterable[str]) -> int:
    names = join_names(channels)
    row = db.execute("SELECT key FROM shapes WHERE names = ?", (names,)).fetchone()
    if row is not None:
        return int(row[0])
    made = db.execute(
        "INSERT INTO shapes (names) VALUES (?) ON CONFLICT (names) DO NOTHING RETURNING key", (names,)
    ).fetchone()
    return _shape_key(db, channels) if made is None else int(made[0])
