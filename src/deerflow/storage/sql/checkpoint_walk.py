"""Queries over many checkpoint rows: histories of delta channels, lists, copies, pruning."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from deerflow.storage.database import Database
from deerflow.storage.sql import checkpoint_chains as chains
from deerflow.storage.sql import checkpoints as rows
from deerflow.storage.sql.checkpoint_shapes import CheckpointRow, Id, Place, compact
from deerflow.storage.sql.checkpoint_steps import walk

PAGE = 64
"""How many checkpoints are read at once when a list has no small limit."""


_BRANCH = """
WITH RECURSIVE branch (id, parent) AS (
    SELECT id, parent FROM checkpoints WHERE chain = ? AND id = ?
    UNION ALL
    SELECT checkpoints.id, checkpoints.parent
    FROM branch JOIN checkpoints ON checkpoints.chain = ? AND checkpoints.id = branch.parent
)
"""
_COPY_CHECKPOINTS = f"""INSERT INTO checkpoints (chain, id, parent, shape, run, blobs, body) {_BRANCH}
SELECT ?, id, parent, shape, run, blobs, body FROM checkpoints
WHERE chain = ? AND id IN (SELECT id FROM branch) ORDER BY key
"""
# Pending writes of the last checkpoint produced its successor, which stays in the source thread.
_COPY_WRITES = f"""INSERT INTO writes (chain, checkpoint, task, path, body) {_BRANCH}
SELECT ?, checkpoint, task, path, body FROM writes
WHERE chain = ? AND checkpoint != ? AND checkpoint IN (SELECT id FROM branch) ORDER BY key
"""


@dataclass(slots=True)
class RawHistory:
    """What one delta channel is rebuilt from, as stored."""

    writes: list[tuple[str, bytes]] = field(default_factory=list)
    """Task and value, oldest first."""
    seed: tuple[bytes, list[bytes]] | None = None
    """Body and large values of the nearest ancestor that holds the channel's value."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Filter and position of a checkpoint list, newest first."""

    thread_id: str | None = None
    ns: str | None = None
    id: str | None = None
    before: str | None = None
    after_row: tuple[Id, int] | None = None
    """The last row of the previous page."""

    def after(self, row: CheckpointRow) -> "Listing":
        """Return the listing that continues after `row`."""
        assert row.place.id is not None
        return replace(self, after_row=(compact(row.place.id), row.key))


def history(db: Database, place: Place, channels: Sequence[str]) -> dict[str, RawHistory]:
    """Collect the writes of each channel up the ancestors, to the nearest one that holds its value."""
    found = {channel: RawHistory() for channel in channels}
    chain = chains.chain_key(db, place)
    start = None if chain is None else _id_of(db, chain, place)
    if chain is None or start is None:
        return found
    open_channels = set(channels)
    for step in walk(db, chain, start, with_writes=True):
        if step.id == start:  # its own writes belong to the next step
            continue
        for _, task, writes in reversed(step.writes(open_channels)):
            for _, channel, value in reversed(writes):
                found[channel].writes.append((task, value))
        for channel in open_channels & step.held:
            found[channel].seed = rows.stored_values(db, chain, step.id)
        open_channels -= step.held
        if not open_channels:
            break
    for raw in found.values():
        raw.writes.reverse()
    return found


def next_page(db: Database, listing: Listing, size: int) -> list[CheckpointRow]:
    """Return up to `size` checkpoints of a listing; -1 means all."""
    conditions: dict[str, Id | str | None] = {
        "chains.thread_id = ?": listing.thread_id,
        "chains.ns = ?": listing.ns,
        "checkpoints.id = ?": compact(listing.id) if listing.id else None,
        "checkpoints.id < ?": compact(listing.before) if listing.before else None,
    }
    where = [text for text, value in conditions.items() if value is not None]
    values: list[Id | str | int] = [value for value in conditions.values() if value is not None]
    if listing.after_row is not None:
        where.append("(checkpoints.id, checkpoints.key) < (?, ?)")
        values += listing.after_row
    sql = (
        "SELECT checkpoints.key, chain, id, parent, blobs, body, thread_id, ns FROM checkpoints "
        f"JOIN chains ON chains.key = chain WHERE {' AND '.join(where) or '1 = 1'} "
        "ORDER BY checkpoints.id DESC, checkpoints.key DESC"
    )
    if size >= 0:
        sql += " LIMIT ?"
        values.append(size)
    found = db.execute(sql, values).fetchall()
    return [rows.complete(db, row[:6], Place(row[6], row[7])) for row in found]


def copy_branch(db: Database, source: Place, target_id: str) -> bool:
    """Copy a checkpoint and its ancestors to a new thread; return False when there is no such checkpoint."""
    assert source.id is not None
    chain, tip = chains.chain_key(db, source), compact(source.id)
    found = "SELECT 1 FROM checkpoints WHERE chain = ? AND id = ?"
    if chain is None or db.execute(found, (chain, tip)).fetchone() is None:
        return False
    new = chains.ensure_chain(db, Place(target_id, source.ns))
    branch = (chain, tip, chain)
    db.execute(_COPY_CHECKPOINTS, (*branch, new, chain))
    db.execute(_COPY_WRITES, (*branch, new, chain, tip))
    db.execute(
        "INSERT INTO blobs (chain, digest, body) SELECT ?, digest, body FROM blobs WHERE chain = ?",
        (new, chain),
    )
    chains.delete_unused_blobs(db, new)
    return True


def copy_chains(db: Database, source: str, target: str) -> None:
    """Copy all chains of a thread and of its sub-threads."""
    for old, thread_id, ns in chains.chains_of(db, source):
        new = chains.ensure_chain(db, Place(target + thread_id.removeprefix(source), ns))
        for table, columns in (
            ("checkpoints", "id, parent, shape, run, blobs, body"),
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
    touched: set[int] = set()
    for run_id in run_ids:
        made = db.execute("SELECT chain, id FROM checkpoints WHERE run = ?", (compact(run_id),)).fetchall()
        for chain, checkpoint in made:
            _delete_checkpoint(db, chain, checkpoint)
            touched.add(chain)
    for chain in touched:
        chains.delete_unused_blobs(db, chain)


def keep_latest(
    db: Database, thread_id: str, deltas: Callable[[bytes], Collection[str]], *, count: int = 1
) -> int:
    """Delete all checkpoints of a thread but the newest `count` of each chain and what they are rebuilt from.

    `deltas` returns the delta channels of a stored body that only its ancestors hold. Returns how many
    checkpoints were deleted.
    """
    dropped = 0
    for chain, _, _ in chains.chains_of(db, thread_id):
        newest = db.execute(
            "SELECT id, body FROM checkpoints WHERE chain = ? ORDER BY id DESC LIMIT ?", (chain, count)
        ).fetchall()
        kept: set[Id] = set()
        for newer, body in newest:
            kept |= _needed(db, chain, newer, set(deltas(body)))
        all_of_it = db.execute("SELECT id FROM checkpoints WHERE chain = ?", (chain,)).fetchall()
        for (step,) in all_of_it:
            if step not in kept:
                _delete_checkpoint(db, chain, step)
                dropped += 1
        if newest:
            chains.delete_unused_blobs(db, chain)
    return dropped


def _needed(db: Database, chain: int, start: Id, open_channels: set[str]) -> set[Id]:
    """Return a checkpoint and the ancestors that hold the channels it lacks."""
    needed: set[Id] = set()
    for step in walk(db, chain, start):
        needed.add(step.id)
        open_channels -= step.held
        if not open_channels:
            break
    return needed


def _id_of(db: Database, chain: int, place: Place) -> Id | None:
    if place.id is not None:
        return compact(place.id)
    row = db.execute(
        "SELECT id FROM checkpoints WHERE chain = ? ORDER BY id DESC LIMIT 1", (chain,)
    ).fetchone()
    return None if row is None else row[0]


def _delete_checkpoint(db: Database, chain: int, checkpoint: Id) -> None:
    db.execute("DELETE FROM writes WHERE chain = ? AND checkpoint = ?", (chain, checkpoint))
    db.execute("DELETE FROM checkpoints WHERE chain = ? AND id = ?", (chain, checkpoint))
