"""BM25: how well each text of a collection answers a weighted list of terms."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

SATURATION = 1.2
"""How soon repeating a term stops helping."""

LENGTH_WEIGHT = 0.75
"""How much a long text pays for its length."""


class Bm25:
    """An index of some texts, given as terms, for the terms that will be asked for."""

    def __init__(self, texts: Iterable[Sequence[str]], *, vocabulary: Iterable[str]) -> None:
        wanted = frozenset(vocabulary)
        self._postings: dict[str, list[tuple[int, int]]] = {term: [] for term in wanted}
        lengths: list[int] = []
        for number, text in enumerate(texts):
            lengths.append(len(text))
            # Only asked-for terms are kept: megabytes of text then cost one pass and little memory.
            for term, count in Counter(term for term in text if term in wanted).items():
                self._postings[term].append((number, count))
        self._mean = (sum(lengths) / len(lengths) if lengths else 0.0) or 1.0
        self._lengths = lengths

    def scores(self, query: Mapping[str, float]) -> list[float]:
        """Return the score of every text for terms with weights; 0 means no term occurs."""
        total = len(self._lengths)
        scores = [0.0] * total
        for term, weight in query.items():
            postings = self._postings.get(term, [])
            rarity = math.log(1 + (total - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * self._lengths[number] / self._mean
                scores[number] += weight * rarity * count * (SATURATION + 1) / (count + SATURATION * norm)
        return scores


def centrality(texts: Sequence[Sequence[str]]) -> list[float]:
    """Score each text by how much it speaks of what the whole collection speaks of."""
    counts = Counter(term for text in texts for term in set(text))
    # A term that occurs once says nothing about the whole.
    weights = {term: math.log(count) for term, count in counts.items() if count > 1}
    scores = []
    for text in texts:
        known = sum(weights.get(term, 0.0) for term in set(text))
        scores.append(known / (len(text) + 8) if text else 0.0)
    return scores


def is_repeat(terms: Sequence[str], earlier: Iterable[Sequence[str]]) -> bool:
    """Say whether a text has nearly the same terms as one of the earlier texts."""
    mine = set(terms)
    return any(mine and len(mine & other) / len(mine | other) > 0.8 for other in map(set, earlier))
