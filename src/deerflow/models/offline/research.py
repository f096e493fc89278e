"""Chooses the sentences of some files that say most about each aspect of a question."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deerflow.models.offline.conversation import Conversation
from deerflow.models.offline.findings import CitedSentence, Research, finding
from deerflow.models.offline.question import FACETS, coverage, key_terms, main_points, query_for
from deerflow.models.offline.ranking import Bm25, centrality, is_repeat
from deerflow.models.offline.reading import aligned, hits_of, source_of, texts_of
from deerflow.models.offline.sentences import Sentence, sentences_of
from deerflow.models.offline.words import Language, terms

FEWEST_TERMS = 3
"""Shorter sentences say too little to be quoted."""
FLOOR = 0.3
"""How good, against the best one in its file, a sentence must be to be quoted."""
MAX_GREP_WORDS = 16

# Such text could pass for a citation or a note of ours, so it is never quoted.
_FORGED = re.compile(r"\[citation:|</?(?:uploaded_files|subagent_system|system-reminder)\b", re.I)


@dataclass(frozen=True, slots=True)
class _Candidate:
    path: str
    sentence: Sentence
    terms: list[str]
    context: list[str]
    """Its own terms and those of the heading above it."""


def research(
    paths: Sequence[str],
    aspects: Sequence[str],
    question: str,
    conversation: Conversation,
    language: Language,
) -> Research:
    """Return the best sentences of what was read in this turn, and how far each file was read."""
    hits = hits_of(conversation)
    texts = texts_of(paths, conversation)
    candidates = [
        candidate
        for text in texts
        for candidate in _candidates(text.path, sentences_of(aligned(text, hits), path=text.path))
    ]
    found = _chosen(candidates, aspects, question)
    approach = FACETS[0].label(language)
    if approach in aspects:  # a comparison: whoever is compared has a say, if only the sentence it turns on
        silent = set(paths) - {item.path for item in found}
        found += _main_sentences(candidates, silent=silent, aspect=approach)
    return Research(tuple(found), tuple(source_of(text, language) for text in texts))


def grep_words(aspects: Sequence[str], question: str) -> list[str]:
    """Return the words to search for: the question's own, then others for them."""
    own = [term for text in (*aspects, question) for term in key_terms(text)]
    wide = [term for aspect in aspects for term in query_for(aspect, question)]
    return list(dict.fromkeys(term for term in (*own, *wide) if len(term) > 1))[:MAX_GREP_WORDS]


def per_aspect(aspects: Sequence[str]) -> int:
    """Return how many sentences of one file to quote on one aspect."""
    return 6 if len(aspects) == 1 else 4 if len(aspects) == 2 else 3


def _candidates(path: str, sentences: Sequence[Sentence]) -> list[_Candidate]:
    found = []
    for sentence in sentences:
        own = terms(sentence.text)
        if len(own) >= FEWEST_TERMS and not _FORGED.search(sentence.text):
            found.append(_Candidate(path, sentence, own, own + terms(sentence.heading)))
    return found


def _chosen(candidates: Sequence[_Candidate], aspects: Sequence[str], question: str) -> list[CitedSentence]:
    scores = _scores(candidates, aspects, question)
    best = _best_aspects(scores)
    indices: dict[tuple[int, str], list[int]] = {}
    for index, candidate in enumerate(candidates):
        if scores[best[index]][index] > 0:
            indices.setdefault((best[index], candidate.path), []).append(index)
    found = []
    for (number, path), mine in sorted(indices.items(), key=lambda item: item[0][0]):
        picked = _distinct(candidates, mine, scores[number], limit=per_aspect(aspects))
        found += [finding(candidates[index].sentence, path=path, aspect=aspects[number]) for index in picked]
    return found


def _main_sentences(
    candidates: Sequence[_Candidate], *, silent: set[str], aspect: str
) -> list[CitedSentence]:
    """Return of each silent file the sentence that speaks most of what the file speaks of."""
    scores = _central(candidates, [0.0] * len(candidates))
    best: dict[str, int] = {}
    for index, candidate in enumerate(candidates):
        if candidate.path in silent and scores[index] > scores[best.setdefault(candidate.path, index)]:
            best[candidate.path] = index
    return [finding(candidates[index].sentence, path=path, aspect=aspect) for path, index in best.items()]


def _scores(candidates: Sequence[_Candidate], aspects: Sequence[str], question: str) -> list[list[float]]:
    queries = [query_for(aspect, question) for aspect in aspects]
    index = Bm25(
        (candidate.context for candidate in candidates),
        vocabulary=(term for query in queries for term in query),
    )
    by_aspect = []
    for aspect, query in zip(aspects, queries, strict=True):
        if aspect in (main_points("en"), main_points("zh")):
            by_aspect.append(_central(candidates, index.scores(query)))
            continue
        own = set(query_for(aspect, ""))
        by_aspect.append(
            [
                score * coverage(aspect, candidate.context) if own.intersection(candidate.context) else 0.0
                for score, candidate in zip(index.scores(query), candidates, strict=True)
            ]
        )
    return by_aspect


def _central(candidates: Sequence[_Candidate], relevance: Sequence[float]) -> list[float]:
    """Score sentences by how much they speak of what their own file speaks of, openings first."""
    scores = [0.0] * len(candidates)
    by_path: dict[str, list[int]] = {}
    for index, candidate in enumerate(candidates):
        by_path.setdefault(candidate.path, []).append(index)
    for indices in by_path.values():
        central = centrality([candidates[index].context for index in indices])
        headings = set[str]()
        for index, score in zip(indices, central, strict=True):
            heading = candidates[index].sentence.heading
            opening = 1.0 if heading in headings else 1.5
            headings.add(heading)
            scores[index] = (score + 0.01) * opening + 0.1 * relevance[index]
    return scores


def _best_aspects(scores: Sequence[Sequence[float]]) -> list[int]:
    """Return for each sentence the aspect it says most about, so that none is quoted twice."""
    peaks = [max(row, default=0.0) or 1.0 for row in scores]
    count = len(scores[0]) if scores else 0
    return [
        max(range(len(scores)), key=lambda number: (scores[number][index] / peaks[number], -number))
        for index in range(count)
    ]


def _distinct(
    candidates: Sequence[_Candidate], indices: Sequence[int], scores: Sequence[float], *, limit: int
) -> list[int]:
    ranked = sorted(indices, key=lambda index: (-scores[index], index))
    picked: list[int] = []
    for index in ranked:
        if len(picked) == limit or scores[index] < FLOOR * scores[ranked[0]]:
            break
        if not is_repeat(candidates[index].terms, (candidates[other].terms for other in picked)):
            picked.append(index)
    return picked
