"""Iterate over the ancestors of a checkpoint: one per statement on a local database, else in pages."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from deerflow.storage.database import Database
from deerflow.storage.sql.checkpoint_shapes import Id, Write, ordered_writes, split_names

_PAGES = (8, 32, 128)
"""Page sizes: most walks are short, and the length is not known in advance."""
_PARENT = "SELECT parent, shape FROM checkpoints WHERE chain = ? AND id = ?"
_NAMES = "SELECT names FROM shapes WHERE key = ?"
_WRITES = "SELECT path, task, body FROM writes WHERE chain = ? AND checkpoint = ?"
_STEPS = """
WITH RECURSIVE steps (depth, id, parent, shape) AS (
    SELECT 0, id, parent, shape FROM checkpoints WHERE chain = ? AND id = ?
    UNION ALL
    SELECT depth + 1, checkpoints.id, checkpoints.parent, checkpoints.shape
    FROM steps JOIN checkpoints ON checkpoints.chain = ? AND checkpoints.id = steps.parent
    WHERE depth < ?
)
"""
_ALONE = f"{_STEPS} SELECT depth, id, parent, names FROM steps JOIN shapes ON key = shape ORDER BY depth"
_WITH_WRITES = f"""{_STEPS}
SELECT depth, steps.id, parent, names, path, task, body
FROM steps JOIN shapes ON shapes.key = shape
LEFT JOIN writes ON writes.chain = ? AND writes.checkpoint = steps.id
ORDER BY depth
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint of a walk."""

    id: Id
    held: frozenset[str]
    """The channels it holds values of."""
    rows: list[tuple[str, Id, bytes]]
    """Path, task and body of its pending writes, if requested."""

    def writes(self, channels: Collection[str]) -> list[tuple[str, str, list[Write]]]:
        """Return path, task and writes of some channels, in the order in which they apply."""
        return ordered_writes(self.rows, channels)


def walk(db: Database, chain: int, start: Id, *, with_writes: bool = False) -> Iterator[Step]:
    """Yield a checkpoint and its ancestors, nearest first; reads no checkpoint bodies.

    Args:
        with_writes: Also read the pending writes of the ancestors.
    """
    return (
        _walk_near(db, chain, start, with_writes)
        if db.dialect.is_near
        else _walk_far(db, chain, start, with_writes)
    )


def _walk_near(db: Database, chain: int, start: Id, with_writes: bool) -> Iterator[Step]:
    shapes: dict[int, frozenset[str]] = {}
    step: Id | None = start
    while step is not None:
        found = db.execute(_PARENT, (chain, step)).fetchone()
        if found is None:
            return
        parent, shape = found
        if shape not in shapes:
            shapes[shape] = split_names(db.execute(_NAMES, (shape,)).fetchone()[0])
        rows = db.execute(_WRITES, (chain, step)).fetchall() if with_writes and step != start else []
        yield Step(step, shapes[shape], rows)
        step = parent


def _walk_far(db: Database, chain: int, start: Id, with_writes: bool) -> Iterator[Step]:
    names: dict[str, frozenset[str]] = {}
    following: Id | None = start
    page = 0
    while following is not None:
        size = _PAGES[min(page, len(_PAGES) - 1)]
        found = _read(db, chain, following, size, with_writes=with_writes)
        following, count = None, 0
        for (_, step, parent, text), rows in groupby(found, key=_step_of):
            if text not in names:
                names[text] = split_names(text)
            writes = [row[4:] for row in rows if with_writes and row[4] is not None]
            yield Step(step, names[text], writes)
            count, following = count + 1, parent
        if count < size:
            return  # the parent of the last one was deleted
        page += 1


def _read(db: Database, chain: int, start: Id, size: int, *, with_writes: bool) -> list[Any]:
    if with_writes:
        return db.execute(_WITH_WRITES, (chain, start, chain, size - 1, chain)).fetchall()
    return db.execute(_ALONE, (chain, start, chain, size - 1)).fetchall()


def _step_of(row: tuple[Any, ...]) -> tuple[int, Id, Id | None, str]:
    return row[0], row[1], row[2], row[3]
