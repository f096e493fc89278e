"""The SQL of checkpoints: chains, rows, ancestors, lists, copies, pruning and rollback.

A chain is one namespace of one thread, with its checkpoints, writes and large values (`blobs`).
Sub-threads are named `thread/call`. Everything here runs inside a transaction of the engine.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import ormsgpack

from deerflow.errors import StaleAttemptError
from deerflow.storage.checkpoint_encoding import (
    CheckpointRef,
    CheckpointRow,
    Id,
    RawHistory,
    Write,
    decode_channel_set,
    decode_id,
    decode_writes,
    encode_channel_set,
    encode_id,
    large_channels,
    ordered_writes,
    split_digests,
    unheld_deltas,
)
from deerflow.storage.database import Database
from deerflow.storage.encoding import compress

_ANCESTOR_PAGES = (8, 32, 128)
"""Page sizes of ancestors: most walks are short, and the length is not known in advance."""
_ANCESTORS = """
WITH RECURSIVE steps (depth, id, parent, channel_set) AS (
    SELECT 0, id, parent, channel_set FROM checkpoints WHERE chain = ? AND id = ?
    UNION ALL
    SELECT depth + 1, checkpoints.id, checkpoints.parent, checkpoints.channel_set
    FROM steps JOIN checkpoints ON checkpoints.chain = ? AND checkpoints.id = steps.parent
    WHERE depth < ?
)
SELECT depth, steps.id, parent, names, path, task, body
FROM steps JOIN channel_sets ON channel_sets.key = channel_set
LEFT JOIN writes ON writes.chain = ? AND writes.checkpoint = steps.id
ORDER BY depth
"""
_BRANCH = """
WITH RECURSIVE branch (id, parent) AS (
    SELECT id, parent FROM checkpoints WHERE chain = ? AND id = ?
    UNION ALL
    SELECT checkpoints.id, checkpoints.parent
    FROM branch JOIN checkpoints ON checkpoints.chain = ? AND checkpoints.id = branch.parent
)
"""
_COPY_CHECKPOINTS = f"""INSERT INTO checkpoints (chain, id, parent, channel_set, run, blobs, body) {_BRANCH}
SELECT ?, id, parent, channel_set, run, blobs, body FROM checkpoints
WHERE chain = ? AND id IN (SELECT id FROM branch) ORDER BY key
"""
# Pending writes of the last checkpoint produced its successor, which stays in the source thread.
_COPY_WRITES = f"""INSERT INTO writes (chain, checkpoint, task, path, body) {_BRANCH}
SELECT ?, checkpoint, task, path, body FROM writes
WHERE chain = ? AND checkpoint != ? AND checkpoint IN (SELECT id FROM branch) ORDER BY key
"""
_NEWEST_ID = "SELECT id FROM checkpoints WHERE chain = ? ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class CheckpointListing:
    """Filter and position of a checkpoint list, newest first."""

    thread_id: str | None = None
    ns: str | None = None
    id: str | None = None
    before: str | None = None
    after_row: tuple[Id, int] | None = None
    """The last row of the previous page."""

    def after(self, row: CheckpointRow) -> "CheckpointListing":
        """Return the listing that continues after `row`."""
        assert row.ref.id is not None
        return replace(self, after_row=(encode_id(row.ref.id), row.key))


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of items and their total bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class StoredSizes:
    """Storage used by the checkpoints of a thread and its sub-threads."""

    checkpoints: Amount
    """Including the values that are small enough to be stored inline."""
    writes: Amount
    channels: Mapping[str, Amount]
    """The large values by channel, each distinct value counted once."""


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


def put(
    db: Database,
    ref: CheckpointRef,
    body: bytes,
    *,
    parent: str | None,
    run_id: str | None,
    channels: Iterable[str],
    blobs: Sequence[tuple[bytes, bytes]],
) -> None:
    """Store a checkpoint; one with the same id is replaced.

    Args:
        channels: The channels it holds values of.
        blobs: Digest and bytes of its large values.
    """
    assert ref.id is not None
    chain = _ensure_chain(db, ref)
    for digest, blob in blobs:
        known = "SELECT 1 FROM blobs WHERE chain = ? AND digest = ?"
        if db.execute(known, (chain, digest)).fetchone() is None:
            db.execute(
                "INSERT INTO blobs (chain, digest, body) VALUES (?, ?, ?) "
                "ON CONFLICT (chain, digest) DO NOTHING",
                (chain, digest, compress(blob)),
            )
    db.execute(
        "INSERT INTO checkpoints (chain, id, parent, channel_set, run, blobs, body) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (chain, id) DO UPDATE SET parent = excluded.parent, "
        "channel_set = excluded.channel_set, run = excluded.run, blobs = excluded.blobs, "
        "body = excluded.body",
        (
            *(chain, encode_id(ref.id), encode_id(parent) if parent else None),
            *(_ensure_channel_set(db, channels), encode_id(run_id) if run_id else None),
            *(b"".join(digest for digest, _ in blobs) or None, compress(body)),
        ),
    )


def put_writes(
    db: Database, ref: CheckpointRef, task_id: str, path: str, writes: Sequence[Write], *, replace: bool
) -> None:
    """Store the writes of one task in one row; for equal indexes the older write stays, unless `replace`."""
    assert ref.id is not None
    chain, checkpoint, task = _ensure_chain(db, ref), encode_id(ref.id), encode_id(task_id)
    old = db.execute(
        "SELECT key, body FROM writes WHERE chain = ? AND checkpoint = ? AND task = ?",
        (chain, checkpoint, task),
    ).fetchone()
    if old is None:
        db.execute(
            "INSERT INTO writes (chain, checkpoint, task, path, body) VALUES (?, ?, ?, ?, ?)",
            (chain, checkpoint, task, path, compress(ormsgpack.packb(writes))),
        )
        return
    merged = {write[0]: write for write in decode_writes(old[1])}
    for write in writes:
        if replace or write[0] not in merged:
            merged[write[0]] = write
    body = compress(ormsgpack.packb(list(merged.values())))
    db.execute("UPDATE writes SET body = ? WHERE key = ?", (body, old[0]))


def get(db: Database, ref: CheckpointRef) -> CheckpointRow | None:
    """Return one checkpoint, the newest of its chain when `ref` has no id."""
    chain = _chain_key(db, ref)
    if chain is None:
        return None
    which, values = ("AND id = ?", [encode_id(ref.id)]) if ref.id else ("ORDER BY id DESC LIMIT 1", [])
    row = db.execute(
        f"SELECT key, chain, id, parent, blobs, body FROM checkpoints WHERE chain = ? {which}",
        (chain, *values),
    ).fetchone()
    return None if row is None else _complete(db, row, ref)


def newest_id(db: Database, ref: CheckpointRef) -> str | None:
    """Return the id of the newest checkpoint of a chain."""
    chain = _chain_key(db, ref)
    row = None if chain is None else db.execute(_NEWEST_ID, (chain,)).fetchone()
    return None if row is None else decode_id(row[0])


def has_run(db: Database, ref: CheckpointRef, run_id: str) -> bool:
    """Return whether a run created a checkpoint of a chain."""
    sql = "SELECT 1 FROM checkpoints WHERE chain = ? AND run = ? LIMIT 1"
    return db.execute(sql, (_chain_key(db, ref), encode_id(run_id))).fetchone() is not None


def next_page(db: Database, listing: CheckpointListing, size: int) -> list[CheckpointRow]:
    """Return up to `size` checkpoints of a listing."""
    conditions: dict[str, Id | str | None] = {
        "chains.thread_id = ?": listing.thread_id,
        "chains.ns = ?": listing.ns,
        "checkpoints.id = ?": encode_id(listing.id) if listing.id else None,
        "checkpoints.id < ?": encode_id(listing.before) if listing.before else None,
    }
    where = [text for text, value in conditions.items() if value is not None]
    values: list[Id | str | int] = [value for value in conditions.values() if value is not None]
    if listing.after_row is not None:
        where.append("(checkpoints.id, checkpoints.key) < (?, ?)")
        values += listing.after_row
    sql = (
        "SELECT checkpoints.key, chain, id, parent, blobs, body, thread_id, ns FROM checkpoints "
        f"JOIN chains ON chains.key = chain WHERE {' AND '.join(where) or '1 = 1'} "
        "ORDER BY checkpoints.id DESC, checkpoints.key DESC LIMIT ?"
    )
    found = db.execute(sql, (*values, size)).fetchall()
    return [_complete(db, row[:6], CheckpointRef(row[6], row[7])) for row in found]


def history(db: Database, ref: CheckpointRef, channels: Sequence[str]) -> dict[str, RawHistory]:
    """Collect the writes of each channel up the ancestors, to the nearest one that holds its value."""
    found = {channel: RawHistory() for channel in channels}
    chain = _chain_key(db, ref)
    newest = ref.id or newest_id(db, ref)
    if chain is None or newest is None:
        return found
    start = encode_id(newest)
    open_channels = set(channels)
    for step in _ancestors(db, chain, start):
        if step.id == start:  # its own writes belong to the next step
            continue
        for _, task, writes in reversed(ordered_writes(step.rows, open_channels)):
            for _, channel, value in reversed(writes):
                found[channel].writes.append((task, value))
        for channel in open_channels & step.held:
            body, digests = db.execute(
                "SELECT body, blobs FROM checkpoints WHERE chain = ? AND id = ?", (chain, step.id)
            ).fetchone()
            found[channel].seed = body, _blobs(db, chain, digests)
        open_channels -= step.held
        if not open_channels:
            break
    for raw in found.values():
        raw.writes.reverse()
    return found


def copy_branch(db: Database, source: CheckpointRef, target_id: str) -> bool:
    """Copy a checkpoint and its ancestors to a new thread; return False when there is no such checkpoint."""
    assert source.id is not None
    chain, tip = _chain_key(db, source), encode_id(source.id)
    found = "SELECT 1 FROM checkpoints WHERE chain = ? AND id = ?"
    if chain is None or db.execute(found, (chain, tip)).fetchone() is None:
        return False
    new = _ensure_chain(db, CheckpointRef(target_id, source.ns))
    branch = (chain, tip, chain)
    db.execute(_COPY_CHECKPOINTS, (*branch, new, chain))
    db.execute(_COPY_WRITES, (*branch, new, chain, tip))
    db.execute(
        "INSERT INTO blobs (chain, digest, body) SELECT ?, digest, body FROM blobs WHERE chain = ?",
        (new, chain),
    )
    _delete_unused_blobs(db, new)
    return True


def copy_chains(db: Database, source: str, target: str) -> None:
    """Copy all chains of a thread and of its sub-threads."""
    for old, thread_id, ns in chains_of(db, source):
        new = _ensure_chain(db, CheckpointRef(target + thread_id.removeprefix(source), ns))
        for table, columns in (
            ("checkpoints", "id, parent, channel_set, run, blobs, body"),
            ("writes", "checkpoint, task, path, body"),
            ("blobs", "digest, body"),
        ):
            db.execute(
                f"INSERT INTO {table} (chain, {columns}) "
                f"SELECT ?, {columns} FROM {table} WHERE chain = ? ORDER BY key",
                (new, old),
            )


def delete_runs(db: Database, run_ids: Sequence[str]) -> None:
    """Delete the checkpoints that these runs created."""
    changed: set[int] = set()
    for run_id in run_ids:
        sql = "SELECT chain, id FROM checkpoints WHERE run = ?"
        for chain, checkpoint in db.execute(sql, (encode_id(run_id),)).fetchall():
            _delete_checkpoint(db, chain, checkpoint)
            changed.add(chain)
    for chain in changed:
        _delete_unused_blobs(db, chain)


def keep_latest(db: Database, thread_id: str, *, count: int = 1) -> int:
    """Delete all checkpoints of a thread but the newest `count` of each chain and what they are rebuilt from.

    Returns how many checkpoints were deleted.
    """
    deleted = 0
    for chain, _, _ in chains_of(db, thread_id):
        newest = db.execute(
            "SELECT id, body FROM checkpoints WHERE chain = ? ORDER BY id DESC LIMIT ?", (chain, count)
        ).fetchall()
        kept: set[Id] = set()
        for start, body in newest:
            kept |= _needed(db, chain, start, unheld_deltas(body))
        for (step,) in db.execute("SELECT id FROM checkpoints WHERE chain = ?", (chain,)).fetchall():
            if step not in kept:
                _delete_checkpoint(db, chain, step)
                deleted += 1
        if newest:
            _delete_unused_blobs(db, chain)
    return deleted


def chains_of(db: Database, thread_id: str) -> list[tuple[int, str, str]]:
    """Return key, thread and namespace of all chains of a thread and its sub-threads."""
    # `0` follows `/` in ASCII: one index range holds every `thread/…`.
    return db.execute(
        "SELECT key, thread_id, ns FROM chains WHERE thread_id = ? OR (thread_id > ? AND thread_id < ?)",
        (thread_id, f"{thread_id}/", f"{thread_id}0"),
    ).fetchall()


def delete_chains(db: Database, thread_id: str) -> None:
    """Delete all checkpoints of a thread and its sub-threads."""
    for chain, _, _ in chains_of(db, thread_id):
        _delete_chain(db, chain)


def sizes(db: Database, thread_id: str) -> StoredSizes:
    """Return the storage used by a thread and its sub-threads."""
    checkpoints, writes = Amount(), Amount()
    channels: dict[str, Amount] = {}
    for chain, _, _ in chains_of(db, thread_id):
        checkpoints += _amount(db, "checkpoints", chain)
        writes += _amount(db, "writes", chain)
        for channel, amount in _large_values(db, chain).items():
            channels[channel] = channels.get(channel, Amount()) + amount
    return StoredSizes(checkpoints, writes, channels)


def rollback_point(db: Database, thread_id: str) -> bytes:
    """Return what `roll_back` needs to restore a thread and its sub-threads to their current state.

    Rows are only ever added, with one exception: pending writes of a newest checkpoint may be replaced by
    those of the next run. So it holds the last keys of each chain and a copy of those writes.
    """
    points = []
    for chain, _, _ in chains_of(db, thread_id):
        last = [
            db.execute(f"SELECT coalesce(max(key), 0) FROM {table} WHERE chain = ?", (chain,)).fetchone()[0]
            for table in ("checkpoints", "writes")
        ]
        pending = db.execute(
            f"SELECT key, body FROM writes WHERE chain = ? AND checkpoint = ({_NEWEST_ID})", (chain, chain)
        ).fetchall()
        points.append([chain, *last, pending])
    return ormsgpack.packb(points)


def roll_back(db: Database, thread_id: str, point: bytes) -> None:
    """Delete everything that was added after the rollback point and restore replaced writes."""
    points: dict[int, list[Any]] = {chain: rest for chain, *rest in ormsgpack.unpackb(point)}
    for chain, _, _ in chains_of(db, thread_id):
        if chain not in points:
            _delete_chain(db, chain)
            continue
        last_checkpoint, last_write, pending = points[chain]
        db.execute("DELETE FROM checkpoints WHERE chain = ? AND key > ?", (chain, last_checkpoint))
        db.execute("DELETE FROM writes WHERE chain = ? AND key > ?", (chain, last_write))
        for key, body in pending:
            db.execute("UPDATE writes SET body = ? WHERE key = ? AND chain = ?", (body, key, chain))
        _delete_unused_blobs(db, chain)


@dataclass(frozen=True, slots=True)
class _Step:
    """One checkpoint of a walk up the ancestors."""

    id: Id
    held: frozenset[str]
    """The channels it holds values of."""
    rows: list[tuple[str, Id, bytes]]
    """Path, task and body of its pending writes."""


def _ancestors(db: Database, chain: int, start: Id) -> Iterator[_Step]:
    """Yield a checkpoint and its ancestors, nearest first; reads no checkpoint bodies."""
    channel_sets: dict[str, frozenset[str]] = {}
    following: Id | None = start
    page = 0
    while following is not None:
        size = _ANCESTOR_PAGES[min(page, len(_ANCESTOR_PAGES) - 1)]
        found = db.execute(_ANCESTORS, (chain, following, chain, size - 1, chain)).fetchall()
        following, count = None, 0
        for (_, step, parent, names), rows in groupby(found, key=lambda row: row[:4]):
            if names not in channel_sets:
                channel_sets[names] = decode_channel_set(names)
            yield _Step(step, channel_sets[names], [row[4:] for row in rows if row[4] is not None])
            count, following = count + 1, parent
        if count < size:
            return  # the parent of the last one was deleted
        page += 1


def _needed(db: Database, chain: int, start: Id, open_channels: set[str]) -> set[Id]:
    """Return a checkpoint and the ancestors that hold the channels it lacks."""
    needed: set[Id] = set()
    for step in _ancestors(db, chain, start):
        needed.add(step.id)
        open_channels -= step.held
        if not open_channels:
            break
    return needed


def _complete(
    db: Database, row: tuple[int, int, Id, Id | None, bytes | None, bytes], ref: CheckpointRef
) -> CheckpointRow:
    """Return a table row with its large values and its writes."""
    key, chain, stored_id, parent, digests, body = row
    writes = "SELECT path, task, body FROM writes WHERE chain = ? AND checkpoint = ?"
    return CheckpointRow(
        key=key,
        ref=CheckpointRef(ref.thread_id, ref.ns, decode_id(stored_id)),
        parent=decode_id(parent) if parent is not None else None,
        body=body,
        blobs=_blobs(db, chain, digests),
        writes=ordered_writes(db.execute(writes, (chain, stored_id)).fetchall()),
    )


def _blobs(db: Database, chain: int, digests: bytes | None) -> list[bytes]:
    """Return the large values of a checkpoint as stored."""
    sql = "SELECT body FROM blobs WHERE chain = ? AND digest = ?"
    return [bytes(db.execute(sql, (chain, digest)).fetchone()[0]) for digest in split_digests(digests)]


def _chain_key(db: Database, ref: CheckpointRef) -> int | None:
    sql = "SELECT key FROM chains WHERE thread_id = ? AND ns = ?"
    row = db.execute(sql, (ref.thread_id, ref.ns)).fetchone()
    return None if row is None else int(row[0])


def _ensure_chain(db: Database, ref: CheckpointRef) -> int:
    key = _chain_key(db, ref)
    if key is not None:
        return key
    created = db.execute(
        "INSERT INTO chains (thread_id, ns) VALUES (?, ?) ON CONFLICT (thread_id, ns) DO NOTHING "
        "RETURNING key",
        (ref.thread_id, ref.ns),
    ).fetchone()
    # No key: another process created the chain in between.
    return _ensure_chain(db, ref) if created is None else int(created[0])


def _ensure_channel_set(db: Database, channels: Iterable[str]) -> int:
    names = encode_channel_set(channels)
    row = db.execute("SELECT key FROM channel_sets WHERE names = ?", (names,)).fetchone()
    if row is not None:
        return int(row[0])
    created = db.execute(
        "INSERT INTO channel_sets (names) VALUES (?) ON CONFLICT (names) DO NOTHING RETURNING key", (names,)
    ).fetchone()
    return _ensure_channel_set(db, channels) if created is None else int(created[0])


def _delete_chain(db: Database, chain: int) -> None:
    for table in ("checkpoints", "writes", "blobs"):
        db.execute(f"DELETE FROM {table} WHERE chain = ?", (chain,))
    db.execute("DELETE FROM chains WHERE key = ?", (chain,))


def _delete_checkpoint(db: Database, chain: int, checkpoint: Id) -> None:
    db.execute("DELETE FROM writes WHERE chain = ? AND checkpoint = ?", (chain, checkpoint))
    db.execute("DELETE FROM checkpoints WHERE chain = ? AND id = ?", (chain, checkpoint))


def _delete_unused_blobs(db: Database, chain: int) -> None:
    rows = db.execute("SELECT blobs FROM checkpoints WHERE chain = ? AND blobs IS NOT NULL", (chain,))
    used = {digest for (joined,) in rows for digest in split_digests(joined)}
    for key, digest in db.execute("SELECT key, digest FROM blobs WHERE chain = ?", (chain,)).fetchall():
        if digest not in used:
            db.execute("DELETE FROM blobs WHERE key = ?", (key,))


def _amount(db: Database, table: str, chain: int) -> Amount:
    sql = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM {table} WHERE chain = ?"
    count, size = db.execute(sql, (chain,)).fetchone()
    return Amount(int(count), int(size))


def _large_values(db: Database, chain: int) -> dict[str, Amount]:
    """Return the number of distinct large values of each channel, and their bytes."""
    found = db.execute("SELECT digest, length(body) FROM blobs WHERE chain = ?", (chain,)).fetchall()
    size = {bytes(digest): int(length) for digest, length in found}
    values: dict[str, set[bytes]] = {}
    holding = "SELECT body, blobs FROM checkpoints WHERE chain = ? AND blobs IS NOT NULL"
    for body, joined in db.execute(holding, (chain,)) if size else ():
        for channel, digest in zip(large_channels(body), split_digests(bytes(joined)), strict=True):
            values.setdefault(channel, set()).add(digest)
    return {
        channel: Amount(len(digests), sum(size.get(digest, 0) for digest in digests))
        for channel, digests in values.items()
    }
