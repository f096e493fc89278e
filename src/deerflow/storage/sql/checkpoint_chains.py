"""Chains: a chain is one namespace of one thread, with its checkpoints, writes and large values."""

from deerflow.storage.database import Database
from deerflow.storage.sql.checkpoint_shapes import Place, split_digests


def chain_key(db: Database, place: Place) -> int | None:
    """Return the key of a chain, None when there is none."""
    row = db.execute(
        "SELECT key FROM chains WHERE thread_id = ? AND ns = ?", (place.thread_id, place.ns)
    ).fetchone()
    return None if row is None else int(row[0])


def ensure_chain(db: Database, place: Place) -> int:
    """Return the key of a chain, created if needed."""
    key = chain_key(db, place)
    if key is not None:
        return key
    made = db.execute(
        "INSERT INTO chains (thread_id, ns) VALUES (?, ?) ON CONFLICT (thread_id, ns) DO NOTHING "
        "RETURNING key",
        (place.thread_id, place.ns),
    ).fetchone()
    # No key: another process created the chain in between.
    return ensure_chain(db, place) if made is None else int(made[0])


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
        delete_chain(db, chain)


def delete_chain(db: Database, chain: int) -> None:
    """Delete one chain with its checkpoints, writes and large values."""
    for table in ("checkpoints", "writes", "blobs"):
        db.execute(f"DELETE FROM {table} WHERE chain = ?", (chain,))
    db.execute("DELETE FROM chains WHERE key = ?", (chain,))


def delete_unused_blobs(db: Database, chain: int) -> None:
    """Delete the large values that no checkpoint of the chain refers to."""
    rows = db.execute("SELECT blobs FROM checkpoints WHERE chain = ? AND blobs IS NOT NULL", (chain,))
    used = {digest for (joined,) in rows for digest in split_digests(joined)}
    for key, digest in db.execute("SELECT key, digest FROM blobs WHERE chain = ?", (chain,)).fetchall():
        if digest not in used:
            db.execute("DELETE FROM blobs WHERE key = ?", (key,))
