"""Search facts by words, in any language; without an index, since there are few."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from deerflow.memory.base import Fact

_WORD = re.compile(r"[^\W_]+")
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def best_facts(
    facts: Sequence[Fact], query: str, *, category: str | None = None, limit: int = 10
) -> list[Fact]:
    """Return the best matching facts; equal matches are ordered by confidence."""
    wanted = [fact for fact in facts if category is None or fact.category == category.strip().lower()]
    terms = set(terms_of(query))
    held = {fact.id: set(terms_of(fact.content)) for fact in wanted}
    counts = Counter(term for found in held.values() for term in found)
    scores = {
        name: sum(math.log(1 + len(wanted) / counts[term]) for term in terms & found)
        for name, found in held.items()
    }
    ranked = sorted(wanted, key=lambda fact: (-scores[fact.id], -fact.confidence, fact.created_at))
    return [fact for fact in ranked if not terms or scores[fact.id] > 0][:limit]


def terms_of(text: str) -> Iterable[str]:
    """Yield the words of a text without a plural `s`; for Chinese, pairs of characters."""
    return (word.rstrip("s") if len(word) > 3 else word for word in words_of(text))


def words_of(text: str) -> Iterable[str]:
    """Yield the words of a text in lower case; for Chinese, which has no spaces, pairs of characters."""
    for word in _WORD.findall(text.casefold()):
        if _WIDE.search(word):
            yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        else:
            yield word
