"""Rank texts in memory for a query, by words (BM25) and by meaning (vectors).

The two scores are added, not their ranks: reciprocal ranks added with equal weights were worse than words
alone in our measurements. Each part is absolute, from 0 (nothing in common) to 1, so that a score can be
compared with a threshold and does not depend on which other texts are ranked.
"""

import asyncio
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deerflow.retrieval.analysis import query_terms, terms
from deerflow.retrieval.embeddings import EmbeddingModel

if TYPE_CHECKING:
    from deerflow.retrieval.embeddings import Matrix

MEANING_WEIGHT = 0.5
"""Share of the meaning in a score; the words have the rest."""
NEIGHBOUR_WEIGHT = 0.5
"""What a term in a neighbouring text counts, compared with one in the text itself."""
_FEWEST_TEXTS = 20
"""Fewer texts say nothing about how frequent a word is: that the only text has it does not make it common."""
_SATURATION = 1.2
_LENGTH_EFFECT = 0.5
"""BM25's k1 and b; facts and passages differ less in length than documents do."""


@dataclass(frozen=True, slots=True)
class RankedText:
    """A text that matches a query."""

    index: int
    """Its position in the ranked texts."""
    score: float
    """From 0 to 1: words and meaning together."""
    words: float
    """How much of the query's words it has, rare ones counting more; from 0 to 1."""
    meaning: float
    """How close its meaning is, from 0 to 1; 0 without an embedding model."""


class Ranker:
    """Texts prepared for many queries. Building and asking block: use a thread for more than 100 texts."""

    def __init__(
        self, texts: Sequence[str], *, embeddings: EmbeddingModel | None = None, neighbours: int = 0
    ) -> None:
        """Analyse and embed `texts`.

        Args:
            embeddings: None ranks by words alone.
            neighbours: So many texts before and after a text lend it their words; for the parts of one
                conversation or document in their order.
        """
        self._size = len(texts)
        self._scorer = WordScorer([terms(text) for text in texts], neighbours=neighbours)
        self._embeddings = embeddings
        self._vectors: Matrix | None = embeddings.embed(texts) if embeddings and texts else None

    def rank(self, query: str, *, limit: int = 10, min_score: float = 0.0) -> list[RankedText]:
        """Return the best texts, best first; never one that shares neither words nor meaning."""
        words = self._scorer.scores(query_terms(query))
        meanings = self._meanings(query)
        weight = MEANING_WEIGHT if self._embeddings else 0.0
        scores = {
            index: fused(words.get(index, 0.0), meanings[index], weight)
            for index in (range(self._size) if self._embeddings else words)
        }
        wanted = [index for index, score in scores.items() if score > 0 and score >= min_score]
        best = heapq.nsmallest(limit, wanted, key=lambda index: (-scores[index], index))
        return [RankedText(at, scores[at], words.get(at, 0.0), meanings[at]) for at in best]

    def _meanings(self, query: str) -> Sequence[float] | Mapping[int, float]:
        if self._embeddings is None or self._vectors is None:
            return defaultdict(float)
        vector = self._embeddings.embed([query])[0]
        cosines: list[float] = (self._vectors @ vector).tolist()
        return [closeness(cosine, self._embeddings.unrelated) for cosine in cosines]


def rank(
    query: str,
    texts: Sequence[str],
    *,
    limit: int = 10,
    embeddings: EmbeddingModel | None = None,
    neighbours: int = 0,
    min_score: float = 0.0,
) -> list[RankedText]:
    """Return the texts that match a query best, best first. Blocks: use `rank_in_thread` on an event loop."""
    ranker = Ranker(texts, embeddings=embeddings, neighbours=neighbours)
    return ranker.rank(query, limit=limit, min_score=min_score)


async def rank_in_thread(
    query: str,
    texts: Sequence[str],
    *,
    limit: int = 10,
    embeddings: EmbeddingModel | None = None,
    neighbours: int = 0,
    min_score: float = 0.0,
) -> list[RankedText]:
    """Like `rank`, in a thread."""
    return await asyncio.to_thread(
        rank,
        query,
        texts,
        limit=limit,
        embeddings=embeddings,
        neighbours=neighbours,
        min_score=min_score,
    )


def fused(words: float, meaning: float, meaning_weight: float = MEANING_WEIGHT) -> float:
    """Return the score of a text from its two parts."""
    return (1 - meaning_weight) * words + meaning_weight * meaning


def closeness(cosine: float, unrelated: float) -> float:
    """Return a cosine as a number from 0, at what unrelated texts have, to 1."""
    return min(max(cosine - unrelated, 0.0) / (1 - unrelated), 1.0)


class WordScorer:
    """BM25 over texts given as terms, as shares of the highest score that a query could get."""

    def __init__(self, texts: Sequence[Sequence[str]], *, neighbours: int = 0) -> None:
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        lengths: list[float] = []
        counted = [Counter(text) for text in texts]
        for index in range(len(texts)):
            counts = _with_neighbours(counted, index, neighbours)
            lengths.append(sum(counts.values()))
            for term, count in counts.items():
                self._postings[term][index] = count
        self._rarity = Rarity(len(texts), {term: len(found) for term, found in self._postings.items()})
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._length_factors = [length_factor(length, average) for length in lengths]

    def scores(self, query: Iterable[str]) -> dict[int, float]:
        """Return the share of each text that has a term of the query."""
        found: dict[int, float] = defaultdict(float)
        total = 0.0
        for term in query:
            rarity = self._rarity.of(term)
            total += rarity
            for index, count in self._postings.get(term, {}).items():
                found[index] += rarity * saturated(count, self._length_factors[index])
        return {index: min(score / total, 1.0) for index, score in found.items()}


@dataclass(frozen=True, slots=True)
class Rarity:
    """How much a term tells: BM25's inverse document frequency."""

    texts: int
    texts_with: Mapping[str, int]

    def of(self, term: str) -> float:
        """Return the weight of a term; a term that no text has counts as one that a single text has."""
        texts, found = max(self.texts, _FEWEST_TEXTS), max(self.texts_with.get(term, 0), 1)
        return math.log(1 + (texts - found + 0.5) / (found + 0.5))


def saturated(count: float, factor: float) -> float:
    """Return what `count` occurrences of a term are worth: 1 for one in a text of average length."""
    return count * (_SATURATION + 1) / (count + _SATURATION * factor)


def length_factor(length: float, average: float) -> float:
    """Return how much the length of a text discounts its terms."""
    return 1 - _LENGTH_EFFECT + _LENGTH_EFFECT * length / (average or 1.0)


def _with_neighbours(texts: Sequence[Counter[str]], index: int, neighbours: int) -> Mapping[str, float]:
    counts: dict[str, float] = dict(texts[index])
    for at in range(max(index - neighbours, 0), min(index + neighbours + 1, len(texts))):
        if at != index:
            for term, count in texts[at].items():
                counts[term] = counts.get(term, 0.0) + NEIGHBOUR_WEIGHT * count
    return counts
