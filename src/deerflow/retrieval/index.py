"""A durable index of texts: only changed texts are indexed anew, and deleted ones are gone at once."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from deerflow.errors import EmbeddingError
from deerflow.retrieval.analysis import query_terms, terms
from deerflow.retrieval.embeddings import EmbeddingModel
from deerflow.retrieval.ranking import (
    MEANING_WEIGHT,
    Rarity,
    closeness,
    fused,
    length_factor,
    saturated,
)

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vector = NDArray[float32]

logger = logging.getLogger(__name__)

_BATCH_SOURCES = 200
"""Stored in one transaction."""
_BATCH_TEXTS = 64
"""Embedded in one call."""
_MAX_QUERY_CHARS = 2000
QUERY_SECONDS = 3.0
"""How long a query waits for its vector; then it is answered by words."""


@dataclass(frozen=True, slots=True)
class IndexText:
    """A text to index, or a part of one."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """Returned with each hit: a place, a date, a title; JSON."""
    searchable: str | None = None
    """What is searched instead of `text`, such as the text with its headings."""


@dataclass(frozen=True, slots=True)
class IndexHit:
    """A text that matches a query."""

    source: str
    part: int
    text: str
    data: Mapping[str, Any]
    score: float
    """From 0 to 1: words and meaning together."""
    words: float
    meaning: float


class StoredTexts(Protocol):
    """The part of the database that the index needs (`storage.PassageStore`)."""

    async def state(self, collection: str) -> Any: ...

    async def digests(self, collection: str) -> Mapping[str, bytes]: ...

    async def change(
        self,
        collection: str,
        *,
        changed: Mapping[str, Any],
        removed: Collection[str] = ...,
        model: str | None = ...,
        version: str | None = ...,
    ) -> None: ...

    async def delete(self, collection: str) -> None: ...

    async def find(
        self, collection: str, terms: Sequence[str], *, model: str | None, vector: "Vector | None", limit: int
    ) -> Any: ...

    async def outdated(self, model: str) -> Sequence[str]: ...

    async def without_vector(self, collection: str, model: str) -> Sequence[tuple[int, str]]: ...

    async def put_vectors(self, collection: str, model: str, vectors: "Mapping[int, Vector]") -> None: ...

    async def switch_model(self, collection: str, model: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Passage:
    body: str
    terms: Sequence[str]
    data: Mapping[str, Any]
    vectors: "Mapping[str, Vector]"


@dataclass(frozen=True, slots=True)
class _Source:
    digest: bytes
    passages: Sequence[_Passage]


class Index:
    """Collections of texts that are found by words and by meaning.

    A collection belongs to one owner; its name is the whole access control, so it must contain the user.
    """

    def __init__(
        self,
        stored: StoredTexts,
        embeddings: EmbeddingModel | None,
        *,
        previous: Sequence[EmbeddingModel] = (),
    ) -> None:
        """Use the texts of a database.

        Args:
            previous: Other models that are at hand: a collection is searched with its own one until
                `reindex` has embedded it anew.
        """
        self._stored = stored
        self._embeddings = embeddings
        known = [*([embeddings] if embeddings else []), *previous]
        self._models = {model.name: model for model in reversed(known)}

    async def version(self, collection: str) -> str:
        """Return what `put` or `sync` stored as the version; empty for a new collection."""
        return str((await self._stored.state(collection)).version)

    async def put(self, collection: str, texts: Mapping[str, Sequence[IndexText]]) -> None:
        """Index the parts of each source; they replace what the source had before."""
        await self._change(collection, texts, removed=(), version=None)

    async def remove(self, collection: str, sources: Collection[str]) -> None:
        """Delete sources."""
        await self._stored.change(collection, changed={}, removed=sources)

    async def delete(self, collection: str) -> None:
        """Delete a collection."""
        await self._stored.delete(collection)

    async def sync(
        self, collection: str, texts: Mapping[str, Sequence[IndexText]], *, version: str | None = None
    ) -> None:
        """Make a collection contain exactly these sources; only changed ones are analysed and embedded."""
        known = await self._stored.digests(collection)
        changed = {source: parts for source, parts in texts.items() if known.get(source) != _digest(parts)}
        await self._change(collection, changed, removed=known.keys() - texts.keys(), version=version)

    async def sync_texts(self, collection: str, texts: Mapping[str, str], *, version: str) -> None:
        """Like `sync`, for sources that are one text each."""
        parts = {source: [IndexText(text)] for source, text in texts.items()}
        await self.sync(collection, parts, version=version)

    async def search(
        self, collection: str, query: str, *, limit: int = 10, min_score: float = 0.0
    ) -> list[IndexHit]:
        """Return the texts that match best, best first."""
        query = query[:_MAX_QUERY_CHARS]
        wanted = query_terms(query)
        model = self._embeddings
        vector = await self._embedded_query(model, query)
        found = await self._stored.find(
            collection, wanted, model=model.name if model else None, vector=vector, limit=limit
        )
        used = self._models.get(found.state.model or "")
        if model is not None and used is not None and used is not model:  # not embedded anew yet
            model, vector = used, await self._embedded_query(used, query)
            found = await self._stored.find(collection, wanted, model=used.name, vector=vector, limit=limit)
        hits = _scored(found, wanted, model if vector is not None else None)
        return sorted(
            (hit for hit in hits if hit.score > 0 and hit.score >= min_score),
            key=lambda hit: (-hit.score, hit.source, hit.part),
        )[:limit]

    async def reindex(self) -> int:
        """Embed the collections of other models anew, while they stay searchable; return how many."""
        model, count = self._embeddings, 0
        if model is None:
            return 0
        for collection in await self._stored.outdated(model.name):
            while not await self._stored.switch_model(collection, model.name):
                rows = await self._stored.without_vector(collection, model.name)
                for start in range(0, len(rows), _BATCH_TEXTS):
                    batch = rows[start : start + _BATCH_TEXTS]
                    vectors = await asyncio.to_thread(model.embed, [text for _, text in batch])
                    keys = [key for key, _ in batch]
                    await self._stored.put_vectors(
                        collection, model.name, dict(zip(keys, vectors, strict=True))
                    )
            count += 1
        return count

    async def _change(
        self,
        collection: str,
        texts: Mapping[str, Sequence[IndexText]],
        *,
        removed: Collection[str],
        version: str | None,
    ) -> None:
        models: list[EmbeddingModel] = []
        if texts and self._embeddings is not None:
            used = (await self._stored.state(collection)).model
            models = [self._models[name] for name in {self._embeddings.name, used} if name in self._models]
        name = self._embeddings.name if self._embeddings else None
        sources = list(texts)
        # Several transactions: one with thousands of texts would make every other write wait.
        for start in range(0, max(len(sources), 1), _BATCH_SOURCES):
            batch = {source: texts[source] for source in sources[start : start + _BATCH_SOURCES]}
            is_last = start + _BATCH_SOURCES >= len(sources)
            await self._stored.change(
                collection,
                changed=await asyncio.to_thread(_prepared, batch, models),
                removed=() if start else removed,
                model=name,
                version=version if is_last else None,
            )

    async def _embedded_query(self, model: EmbeddingModel | None, query: str) -> "Vector | None":
        if model is None:
            return None
        try:
            if model.is_fast:
                vector: Vector = model.embed([query])[0]
            else:
                async with asyncio.timeout(QUERY_SECONDS):
                    vector = (await asyncio.to_thread(model.embed, [query]))[0]
        except TimeoutError:
            logger.warning("embeddings: no vector after %g seconds; searching by words alone", QUERY_SECONDS)
            return None
        except EmbeddingError as error:
            logger.warning("embeddings: %s; searching by words alone", error)
            return None
        return vector if vector.any() else None


def _digest(parts: Sequence[IndexText]) -> bytes:
    shown = [(part.text, part.data, part.searchable) for part in parts]
    return hashlib.blake2b(orjson.dumps(shown), digest_size=16).digest()


def _prepared(
    texts: Mapping[str, Sequence[IndexText]], models: Sequence[EmbeddingModel]
) -> dict[str, _Source]:
    """Return sources with their terms and vectors; blocks."""
    flat = [part.searchable or part.text for parts in texts.values() for part in parts]
    vectors: dict[str, list[Vector]] = {}
    for model in models:
        try:
            vectors[model.name] = [
                vector
                for start in range(0, len(flat), _BATCH_TEXTS)
                for vector in model.embed(flat[start : start + _BATCH_TEXTS])
            ]
        except EmbeddingError as error:
            logger.warning("embeddings: %s; new texts are found by words alone for now", error)
    sources: dict[str, _Source] = {}
    at = 0
    for source, parts in texts.items():
        passages = []
        for part in parts:
            of_part = {name: found[at] for name, found in vectors.items()}
            passages.append(_Passage(part.text, terms(flat[at]), part.data, of_part))
            at += 1
        sources[source] = _Source(_digest(parts), passages)
    return sources


def _scored(found: Any, wanted: Sequence[str], model: EmbeddingModel | None) -> list[IndexHit]:
    """Return the candidates with their scores, as `Ranker` scores texts in memory."""
    state = found.state
    rarity = Rarity(state.passages, found.passages_with)
    average = state.terms / state.passages if state.passages else 1.0
    weights = {term: rarity.of(term) for term in wanted}
    total = sum(weights.values()) or 1.0
    weight = MEANING_WEIGHT if model else 0.0
    hits = []
    for passage in found.found:
        counts = Counter(term for term in passage.terms if term in weights)
        factor = length_factor(len(passage.terms), average)
        score = sum(weights[term] * saturated(count, factor) for term, count in counts.items())
        words = min(score / total, 1.0)
        meaning = closeness(passage.cosine, model.unrelated) if model and passage.cosine is not None else 0.0
        hits.append(
            IndexHit(
                *(passage.source, passage.part, passage.body, passage.data),
                score=fused(words, meaning, weight),
                words=words,
                meaning=meaning,
            )
        )
    return hits
