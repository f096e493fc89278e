"""Texts that are found by words and by meaning: full-text search and vectors, the same on every database.

A collection is a set of sources, such as the facts of one memory or the files of one folder; a source has
one or more passages. Terms are analysed by the caller. Each is indexed as a token that contains its
collection, so that the search of one collection reads nothing of another one.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from deerflow.storage.database import Database, Engine
from deerflow.storage.encoding import dump_json, without_nul

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vector = NDArray[float32]

_TOKEN_BYTES = 6
_CANDIDATES = 4
_FEWEST_CANDIDATES = 50
"""By each of words and meaning so many times the wanted passages are compared, and at least so many."""
_PAGE_ROWS = 256


@dataclass(frozen=True, slots=True)
class PassageRow:
    """A passage to store."""

    body: str
    terms: Sequence[str]
    data: Mapping[str, Any]
    """What the caller wants back with it; JSON."""
    vectors: "Mapping[str, Vector]"
    """By embedding model."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source to store, with its passages in order."""

    digest: bytes
    passages: Sequence[PassageRow]


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage that may match."""

    key: int
    source: str
    part: int
    body: str
    terms: Sequence[str]
    data: Mapping[str, Any]
    cosine: float | None
    """None where it has no vector of the wanted model."""


@dataclass(frozen=True, slots=True)
class CollectionState:
    """What is stored of a collection."""

    model: str | None = None
    """The embedding model of which every passage has a vector."""
    version: str = ""
    passages: int = 0
    terms: int = 0


@dataclass(frozen=True, slots=True)
class PassageCandidates:
    """The passages that may match a query, in no order, and what is needed to score them."""

    state: CollectionState
    passages_with: Mapping[str, int]
    """How many passages of the collection have each term of the query."""
    found: Sequence[StoredPassage]


class PassageStore:
    """Collections of passages in the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def state(self, collection: str) -> CollectionState:
        """Return the state of a collection; an empty one if there is none."""
        return (await self._engine.peek(lambda db: _collection(db, collection)))[1]

    async def digests(self, collection: str) -> Mapping[str, bytes]:
        """Return the digest of each source."""
        return await self._engine.read(lambda db: _digests(db, collection))

    async def change(
        self,
        collection: str,
        *,
        changed: Mapping[str, SourceRow],
        removed: Collection[str] = (),
        model: str | None = None,
        version: str | None = None,
    ) -> None:
        """Replace the passages of some sources and delete others, in one transaction.

        Args:
            model: The embedding model whose vectors a new collection has.
            version: Stored with the collection, for the caller.
        """
        await self._engine.write(
            lambda db: _change(db, collection, changed, removed, model=model, version=version)
        )

    async def delete(self, collection: str) -> None:
        """Delete a collection with everything in it."""
        await self._engine.write(lambda db: _delete(db, collection))

    async def find(
        self, collection: str, terms: Sequence[str], *, model: str | None, vector: "Vector | None", limit: int
    ) -> PassageCandidates:
        """Return the passages with the most telling terms and those with the closest vectors.

        Args:
            model: The embedding model of `vector`.
            limit: How many of them the caller wants in the end; more are returned.
        """
        most = max(limit * _CANDIDATES, _FEWEST_CANDIDATES)
        return await self._engine.read(lambda db: _find(db, collection, terms, model, vector, most))

    async def outdated(self, model: str) -> Sequence[str]:
        """Return the collections whose vectors are of another embedding model."""
        sql = "SELECT name FROM collections WHERE model IS NULL OR model <> ? ORDER BY key"
        return await self._engine.read(lambda db: [name for (name,) in db.execute(sql, (model,))])

    async def without_vector(self, collection: str, model: str) -> Sequence[tuple[int, str]]:
        """Return the next passages that have no vector of a model: their keys and texts."""
        return await self._engine.read(lambda db: _without_vector(db, collection, model))

    async def put_vectors(self, collection: str, model: str, vectors: "Mapping[int, Vector]") -> None:
        """Add vectors of a model; those of passages that were deleted meanwhile are ignored."""
        await self._engine.write(lambda db: _put_vectors(db, collection, model, vectors))

    async def switch_model(self, collection: str, model: str) -> bool:
        """Use the vectors of a model and delete all others; False while a passage has none of it."""
        return await self._engine.write(lambda db: _switch_model(db, collection, model))


def token(collection: int, term: str) -> str:
    """Return the token of a term: letters and digits only, so that no database splits or folds it."""
    return f"{collection:x}g{hashlib.blake2b(term.encode(), digest_size=_TOKEN_BYTES).hexdigest()}"


def _collection(db: Database, name: str) -> tuple[int | None, CollectionState]:
    sql = "SELECT key, model, version, passages, terms FROM collections WHERE name = ?"
    row = db.execute(sql, (name,)).fetchone()
    return (None, CollectionState()) if row is None else (row[0], CollectionState(*row[1:]))


def _digests(db: Database, name: str) -> dict[str, bytes]:
    key, _ = _collection(db, name)
    rows = db.execute("SELECT name, digest FROM sources WHERE collection = ?", (key,))
    return {source: bytes(digest) for source, digest in rows}


def _change(
    db: Database,
    name: str,
    changed: Mapping[str, SourceRow],
    removed: Collection[str],
    *,
    model: str | None,
    version: str | None,
) -> None:
    db.execute("INSERT INTO collections (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (name,))
    # Locks the row: two processes that change one collection do it one after the other.
    sql = "UPDATE collections SET version = coalesce(?, version) WHERE name = ?"
    db.execute(sql, (version, name))
    collection, _ = _collection(db, name)
    assert collection is not None
    _remove_sources(db, collection, {*changed, *removed})
    _set_model(db, name, changed, model)
    vectors: dict[str, dict[int, Vector]] = defaultdict(dict)
    for source, row in changed.items():
        sql = "INSERT INTO sources (collection, name, digest) VALUES (?, ?, ?)"
        db.execute(sql, (collection, source, row.digest))
        for part, passage in enumerate(row.passages):
            key = _insert(db, collection, source, part, passage)
            for of_model, vector in passage.vectors.items():
                vectors[of_model][key] = vector
    for of_model, found in vectors.items():
        db.dialect.text_index.put_vectors(db, collection, of_model, found)
    count = sum(len(row.passages) for row in changed.values())
    terms = sum(len(passage.terms) for row in changed.values() for passage in row.passages)
    _add_totals(db, collection, count, terms)


def _set_model(db: Database, name: str, changed: Mapping[str, SourceRow], model: str | None) -> None:
    """Record the model whose vectors all passages have once these are added; None if there is none."""
    collection, state = _collection(db, name)
    used = state.model if state.passages else model
    added = [passage for row in changed.values() for passage in row.passages]
    if used is not None and any(used not in passage.vectors for passage in added):
        used = None
    if used != state.model:
        db.execute("UPDATE collections SET model = ? WHERE key = ?", (used, collection))


def _insert(db: Database, collection: int, source: str, part: int, passage: PassageRow) -> int:
    (key,) = db.execute(
        "INSERT INTO passages (collection, source, part, body, terms, data) VALUES (?, ?, ?, ?, ?, ?) "
        "RETURNING key",
        (
            *(collection, source, part, without_nul(passage.body), " ".join(passage.terms)),
            dump_json(passage.data, what=f"the data of '{source}'").decode(),
        ),
    ).fetchone()
    db.dialect.text_index.add(db, key, _tokens(collection, passage.terms))
    return int(key)


def _remove_sources(db: Database, collection: int, sources: Iterable[str]) -> None:
    keys: list[int] = []
    terms = 0
    for source in sources:
        rows = db.execute(
            "SELECT key, terms FROM passages WHERE collection = ? AND source = ?", (collection, source)
        ).fetchall()
        for key, text in rows:
            words = text.split()
            db.dialect.text_index.remove(db, key, _tokens(collection, words))
            keys.append(key)
            terms += len(words)
        db.execute("DELETE FROM passages WHERE collection = ? AND source = ?", (collection, source))
        db.execute("DELETE FROM sources WHERE collection = ? AND name = ?", (collection, source))
    if keys:
        db.dialect.text_index.remove_vectors(db, collection, keys)
        _add_totals(db, collection, -len(keys), -terms)


def _add_totals(db: Database, collection: int, passages: int, terms: int) -> None:
    sql = "UPDATE collections SET passages = passages + ?, terms = terms + ? WHERE key = ?"
    db.execute(sql, (passages, terms, collection))


def _delete(db: Database, name: str) -> None:
    collection, _ = _collection(db, name)
    if collection is not None:
        rows = db.execute("SELECT name FROM sources WHERE collection = ?", (collection,)).fetchall()
        _remove_sources(db, collection, [source for (source,) in rows])
        db.execute("DELETE FROM passage_vectors WHERE collection = ?", (collection,))
        db.execute("DELETE FROM collections WHERE key = ?", (collection,))


def _find(
    db: Database,
    name: str,
    terms: Sequence[str],
    model: str | None,
    vector: "Vector | None",
    most: int,
) -> PassageCandidates:
    collection, state = _collection(db, name)
    if collection is None:
        return PassageCandidates(state, {}, ())
    index = db.dialect.text_index
    keys_of = {term: index.with_token(db, token(collection, term)) for term in terms}
    keys = _with_rarest_terms(keys_of.values(), state.passages, most)
    cosines: Mapping[int, float] = {}
    if model is not None and vector is not None:
        cosines = index.nearest(db, collection, model, vector, most, also=keys)
    return PassageCandidates(
        state,
        {term: len(found) for term, found in keys_of.items()},
        _rows(db, {*keys, *cosines}, cosines),
    )


def _with_rarest_terms(keys_of_terms: Iterable[Sequence[int]], passages: int, most: int) -> list[int]:
    """Return the passages with the highest sum of inverse frequencies; of equal ones the newest."""
    sums: dict[int, float] = defaultdict(float)
    for keys in keys_of_terms:
        rarity = math.log(1 + (passages - len(keys) + 0.5) / (len(keys) + 0.5)) if keys else 0.0
        for key in keys:
            sums[key] += rarity
    if len(sums) <= most:
        return list(sums)
    return sorted(sums, key=lambda key: (sums[key], key), reverse=True)[:most]


def _rows(db: Database, keys: Collection[int], cosines: Mapping[int, float]) -> list[StoredPassage]:
    sql = f"SELECT key, source, part, body, terms, data FROM passages WHERE key {db.dialect.is_number_of}"
    rows = db.execute(sql, (orjson.dumps(list(keys)).decode(),)) if keys else ()
    return [
        StoredPassage(key, source, part, body, terms.split(), orjson.loads(data), cosines.get(key))
        for key, source, part, body, terms, data in rows
    ]


def _without_vector(db: Database, name: str, model: str) -> list[tuple[int, str]]:
    collection, _ = _collection(db, name)
    if collection is None:
        return []
    has_it = db.dialect.text_index.with_vector(db, collection, model)
    found: list[tuple[int, str]] = []
    sql = "SELECT key, body FROM passages WHERE collection = ?"
    for key, body in db.execute(sql, (collection,)):
        if key not in has_it:
            found.append((key, body))
            if len(found) == _PAGE_ROWS:
                break
    return found


def _put_vectors(db: Database, name: str, model: str, vectors: "Mapping[int, Vector]") -> None:
    collection, _ = _collection(db, name)
    if collection is None:
        return
    sql = f"SELECT key FROM passages WHERE collection = ? AND key {db.dialect.is_number_of}"
    rows = db.execute(sql, (collection, orjson.dumps(list(vectors)).decode())).fetchall()
    db.dialect.text_index.put_vectors(db, collection, model, {key: vectors[key] for (key,) in rows})


def _switch_model(db: Database, name: str, model: str) -> bool:
    collection, state = _collection(db, name)
    if collection is None:
        return True
    if len(db.dialect.text_index.with_vector(db, collection, model)) < state.passages:
        return False
    db.execute("UPDATE collections SET model = ? WHERE key = ?", (model, collection))
    db.execute("DELETE FROM passage_vectors WHERE collection = ? AND model <> ?", (collection, model))
    return True


def _tokens(collection: int, terms: Iterable[str]) -> list[str]:
    return [token(collection, term) for term in dict.fromkeys(terms)]
