"""Full-text index and vectors of passages in PostgreSQL, with pgvector where the server has it."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson
from typing_extensions import override

from deerflow.storage.database import Database, TextIndex
from deerflow.storage.sqlite.text_index import nearest_of

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vector = NDArray[float32]

_KEYS = "(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(? AS JSON)) AS given (value))"


class PostgresTextIndex(TextIndex):
    """A GIN index of lexemes for the terms, arrays for the vectors."""

    @override
    def add(self, db: Database, key: int, tokens: Sequence[str]) -> None:
        if tokens:
            db.execute(
                "UPDATE passages SET tokens = array_to_tsvector(string_to_array(?, ' ')) WHERE key = ?",
                (" ".join(tokens), key),
            )

    @override
    def remove(self, db: Database, key: int, tokens: Sequence[str]) -> None:
        return  # deleted with its row

    @override
    def with_token(self, db: Database, token: str) -> Sequence[int]:
        rows = db.execute("SELECT key FROM passages WHERE tokens @@ CAST(? AS TSQUERY)", (token,))
        return [key for (key,) in rows]

    @override
    def put_vectors(self, db: Database, collection: int, model: str, vectors: "Mapping[int, Vector]") -> None:
        for key, vector in vectors.items():
            db.execute(
                "INSERT INTO passage_vectors (collection, model, passage, vector) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (collection, model, passage) DO UPDATE SET vector = excluded.vector",
                (collection, model, key, vector.tolist()),
            )

    @override
    def remove_vectors(self, db: Database, collection: int, keys: Collection[int]) -> None:
        db.execute(
            f"DELETE FROM passage_vectors WHERE collection = ? AND passage IN {_KEYS}",
            (collection, orjson.dumps(list(keys)).decode()),
        )

    @override
    def with_vector(self, db: Database, collection: int, model: str) -> Collection[int]:
        sql = "SELECT passage FROM passage_vectors WHERE collection = ? AND model = ?"
        return {key for (key,) in db.execute(sql, (collection, model))}

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
        schema = _schema_of_extension(db)
        if schema is None:
            return _compared_here(db, collection, model, vector, limit, also)
        # The inner product with the sign that makes the nearest the smallest; all vectors have length 1.
        distance = f"CAST(vector AS {schema}.vector) OPERATOR({schema}.<#>) CAST(? AS {schema}.vector)"
        where = "FROM passage_vectors WHERE collection = ? AND model = ?"
        given = orjson.dumps(vector.tolist()).decode()
        rows = db.execute(
            f"(SELECT passage, {distance} AS distance {where} ORDER BY distance LIMIT ?) "
            f"UNION SELECT passage, {distance} {where} AND passage IN {_KEYS}",
            (
                *(given, collection, model, limit),
                *(given, collection, model, orjson.dumps(list(also)).decode()),
            ),
        )
        return {passage: -distance for passage, distance in rows}


def _schema_of_extension(db: Database) -> str | None:
    """Return the quoted schema that has pgvector; None where the server does not have it."""
    row = db.execute(
        "SELECT CAST(CAST(extnamespace AS REGNAMESPACE) AS TEXT) FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    return None if row is None else str(row[0])


def _compared_here(
    db: Database, collection: int, model: str, vector: "Vector", limit: int, also: Sequence[int]
) -> Mapping[int, float]:
    import numpy as np  # noqa: PLC0415 - on first use

    sql = "SELECT passage, vector FROM passage_vectors WHERE collection = ? AND model = ?"
    rows = db.execute(sql, (collection, model)).fetchall()
    keys = np.asarray([row[0] for row in rows], np.int64)
    vectors = np.asarray([row[1] for row in rows], np.float32).reshape(len(keys), len(vector))
    return nearest_of(keys, vectors, vector, limit, also=also)
