"""Marks: the state needed to restore a thread's checkpoints exactly.

Rows are only ever added, with one exception: pending writes of a newest checkpoint may be replaced
by those of the next run. So a mark holds the last keys of each chain and a copy of those writes.
"""

from typing import Any

import ormsgpack

from deerflow.storage.database import Database
from deerflow.storage.sql import checkpoint_chains as chains


def make_mark(db: Database, thread_id: str) -> bytes:
    """Return the current position of all chains of a thread and its sub-threads."""
    return ormsgpack.packb([_mark_chain(db, chain) for chain, _, _ in chains.chains_of(db, thread_id)])


def roll_back(db: Database, thread_id: str, mark: bytes) -> None:
    """Delete everything that was added after the mark and restore replaced writes."""
    marked: dict[int, list[Any]] = {chain[0]: chain for chain in ormsgpack.unpackb(mark)}
    for chain, _, _ in chains.chains_of(db, thread_id):
        if chain in marked:
            _roll_back_chain(db, *marked[chain])
        else:
            chains.delete_chain(db, chain)


def _mark_chain(db: Database, chain: int) -> list[Any]:
    (last_checkpoint,) = db.execute(
        "SELECT coalesce(max(key), 0) FROM checkpoints WHERE chain = ?", (chain,)
    ).fetchone()
    (last_write,) = db.execute(
        "SELECT coalesce(max(key), 0) FROM writes WHERE chain = ?", (chain,)
    ).fetchone()
    waiting = db.execute(
        "SELECT key, body FROM writes WHERE chain = ? AND checkpoint = "
        "(SELECT id FROM checkpoints WHERE chain = ? ORDER BY id DESC LIMIT 1)",
        (chain, chain),
    ).fetchall()
    return [chain, last_checkpoint, last_write, waiting]


def _roll_back_chain(
    db: Database,
    chain: int,
    last_checkpoint: int,
    last_write: int,
    waiting: list[tuple[int, bytes]],
) -> None:
    db.execute("DELETE FROM checkpoints WHERE chain = ? AND key > ?", (chain, last_checkpoint))
    db.execute("DELETE FROM writes WHERE chain = ? AND key > ?", (chain, last_write))
    for key, body in waiting:
        db.execute("UPDATE writes SET body = ? WHERE key = ? AND chain = ?", (body, key, chain))
    chains.delete_unused_blobs(db, chain)
