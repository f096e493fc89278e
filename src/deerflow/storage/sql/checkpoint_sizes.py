"""Compute the storage used by the checkpoints of a thread."""

from collections.abc import Callable, Sequence

from deerflow.storage.base.checkpoints import Amount, StoredSizes
from deerflow.storage.database import Database
from deerflow.storage.sql.checkpoint_chains import chains_of
from deerflow.storage.sql.checkpoint_shapes import split_digests


def sizes(db: Database, thread_id: str, large: Callable[[bytes], Sequence[str]]) -> StoredSizes:
    """Return the storage used by a thread and its sub-threads.

    Args:
        large: Returns the channels of a stored body whose values are stored separately, in their order.
    """
    checkpoints, writes = Amount(), Amount()
    channels: dict[str, Amount] = {}
    for chain, _, _ in chains_of(db, thread_id):
        checkpoints += _amount(db, "checkpoints", chain)
        writes += _amount(db, "writes", chain)
        for channel, amount in _channels(db, chain, large).items():
            channels[channel] = channels.get(channel, Amount()) + amount
    return StoredSizes(checkpoints, writes, channels)


def _amount(db: Database, table: str, chain: int) -> Amount:
    sql = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM {table} WHERE chain = ?"
    count, size = db.execute(sql, (chain,)).fetchone()
    return Amount(int(count), int(size))


def _channels(db: Database, chain: int, large: Callable[[bytes], Sequence[str]]) -> dict[str, Amount]:
    """Return the number of distinct large values of each channel, and their bytes."""
    found = db.execute("SELECT digest, length(body) FROM blobs WHERE chain = ?", (chain,)).fetchall()
    size = {bytes(digest): int(length) for digest, length in found}
    values: dict[str, set[bytes]] = {}
    holding = "SELECT body, blobs FROM checkpoints WHERE chain = ? AND blobs IS NOT NULL"
    for body, joined in db.execute(holding, (chain,)) if size else ():
        for channel, digest in zip(large(body), split_digests(bytes(joined)), strict=True):
            values.setdefault(channel, set()).add(digest)
    return {
        channel: Amount(len(digests), sum(size.get(digest, 0) for digest in digests))
        for channel, digests in values.items()
    }
