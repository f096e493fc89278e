"""Full-text index and vectors of passages in SQLite.

Vectors are compared with numpy and not with the extension `sqlite-vec`: many Pythons cannot load extensions,
and 64 vectors per row make this scan of 10,000 vectors faster than the extension's (0.8 against 1.5 ms).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from deerflow.storage.database import Database, TextIndex

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

    Vector = NDArray[float32]

_BLOCK_BITS = 6
"""A block has the vectors of the passages whose keys differ only in these bits."""


class SqliteTextIndex(TextIndex):
    """FTS5 for the terms, blocks of vectors in rows."""

    @override
    def add(self, db: Database, key: int, tokens: Sequence[str]) -> None:
        db.execute("INSERT INTO passage_terms (rowid, tokens) VALUES (?, ?)", (key, " ".join(tokens)))

    @override
    def remove(self, db: Database, key: int, tokens: Sequence[str]) -> None:
        db.execute(
            "INSERT INTO passage_terms (passage_terms, rowid, tokens) VALUES ('delete', ?, ?)",
            (key, " ".join(tokens)),
        )

    @override
    def with_token(self, db: Database, token: str) -> Sequence[int]:
        rows = db.execute("SELECT rowid FROM passage_terms WHERE passage_terms MATCH ?", (token,))
        return [key for (key,) in rows]

    @override
    def put_vectors(self, db: Database, collection: int, model: str, vectors: "Mapping[int, Vector]") -> None:
        for block in {key >> _BLOCK_BITS for key in vectors}:
            known = _block(db, collection, model, block)
            known.update({key: vector for key, vector in vectors.items() if key >> _BLOCK_BITS == block})
            _put_block(db, collection, model, block, known)

    @override
    def remove_vectors(self, db: Database, collection: int, keys: Collection[int]) -> None:
        sql = "SELECT DISTINCT model FROM passage_vectors WHERE collection = ?"
        for (model,) in db.execute(sql, (collection,)).fetchall():
            for block in {key >> _BLOCK_BITS for key in keys}:
                known = _block(db, collection, model, block)
                left = {key: vector for key, vector in known.items() if key not in keys}
                if len(left) < len(known):
                    _put_block(db, collection, model, block, left)

    @override
    def with_vector(self, db: Database, collection: int, model: str) -> Collection[int]:
        import numpy as np  # noqa: PLC0415 - on first use

        sql = "SELECT passages FROM passage_vectors WHERE collection = ? AND model = ?"
        return {
            int(key)
            for (keys,) in db.execute(sql, (collection, model))
            for key in np.frombuffer(keys, np.int64)
        }

    @override
    def nearest(
        self,
        db: Database,
        collection: int,
        model: str,
        vector: "Vector",
        limit: int,
        *,
        also: Sequence[int] = (),
    ) -> Mapping[int, float]:
        import numpy as np  # noqa: PLC0415 - on first use

        sql = "SELECT passages, vectors FROM passage_vectors WHERE collection = ? AND model = ?"
        rows = db.execute(sql, (collection, model)).fetchall()
        keys = np.frombuffer(b"".join([row[0] for row in rows]), np.int64)
        vectors = np.frombuffer(b"".join([row[1] for row in rows]), np.float32)
        vectors = vectors.reshape(len(keys), len(vector))
        return nearest_of(keys, vectors, vector, limit, also=also)


def nearest_of(
    keys: "NDArray[int64]",
    vectors: "Vector",
    vector: "Vector",
    limit: int,
    *,
    also: Sequence[int] = (),
) -> dict[int, float]:
    """Return the cosines of the nearest passages, and of those in `also`."""
    import numpy as np  # noqa: PLC0415 - on first use

    if not len(keys):
        return {}
    # Not `@`: its threads wait for each other where other work keeps the processors busy.
    cosines = np.einsum("ij,j->i", vectors, vector)
    chosen = np.isin(keys, np.asarray(also, np.int64))
    if limit < len(keys):
        chosen[np.argpartition(-cosines, limit - 1)[:limit]] = True
    else:
        chosen[:] = True
    return dict(zip(keys[chosen].tolist(), cosines[chosen].tolist(), strict=True))


def _block(db: Database, collection: int, model: str, block: int) -> "dict[int, Vector]":
    import numpy as np  # noqa: PLC0415 - on first use

    row = db.execute(
        "SELECT passages, vectors FROM passage_vectors WHERE collection = ? AND model = ? AND block = ?",
        (collection, model, block),
    ).fetchone()
    if row is None:
        return {}
    keys = np.frombuffer(row[0], np.int64)
    vectors = np.frombuffer(row[1], np.float32).reshape(len(keys), -1)
    return dict(zip(keys.tolist(), vectors, strict=True))


def _put_block(
    db: Database, collection: int, model: str, block: int, vectors: "Mapping[int, Vector]"
) -> None:
    import numpy as np  # noqa: PLC0415 - on first use

    if not vectors:
        db.execute(
            "DELETE FROM passage_vectors WHERE collection = ? AND model = ? AND block = ?",
            (collection, model, block),
        )
        return
    keys = np.fromiter(vectors, np.int64, len(vectors)).tobytes()
    rows = np.stack(list(vectors.values())).astype(np.float32, copy=False).tobytes()
    db.execute(
        "INSERT OR REPLACE INTO passage_vectors (collection, model, block, passages, vectors) "
        "VALUES (?, ?, ?, ?, ?)",
        (collection, model, block, keys, rows),
    )
