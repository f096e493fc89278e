"""Quotes: sentences of files with the lines that prove them, ranked, and written as citations.

For everything that answers without a model that can reason, and for whoever reads citations back.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from deerflow.retrieval.analysis import query_terms, terms
from deerflow.retrieval.embeddings import default_embeddings
from deerflow.retrieval.ranking import Ranker
from deerflow.retrieval.sentences import Fragment, NumberedLine, sentences_of

FLOOR = 0.3
"""How good, against the best one, a sentence must be to be quoted."""
_CITED = re.compile(
    r"(?P<text>.*?)\[citation:[^\]\n]*:p?\d+\]\((?P<link>/[^)\s#]*)#(?P<at>L|page=)(?P<number>\d+)\)"
)
_UNSAFE = re.compile(r"[\s()<>\[\]#?%\"\\`|]")
"""What would end a Markdown link; the rest of a path stays readable."""
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|big|large|old|often|slow|fast|far)\b|\bwhen\b|多少|几|多久|多大|多长", re.I
)
_NUMBER = re.compile(
    r"\d|[一二三四五六七八九十百千万两]{2,}|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
)
# Such text could pass for a citation or a note of ours, so it is never quoted.
_FORGED = re.compile(r"\[citation:|</?(?:uploaded_files|subagent_system|system-reminder)\b", re.I)


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a file."""

    path: str
    fragments: tuple[Fragment, ...]
    page: int | None = None
    heading: str = ""
    score: float = 0.0

    @property
    def text(self) -> str:
        return " ".join(fragment.text for fragment in self.fragments)


def quotes_of(
    path: str, lines: Iterable[NumberedLine], *, page: int | None = None, heading: str = ""
) -> Iterator[Quote]:
    """Yield the sentences of numbered lines of a file."""
    for sentence in sentences_of(lines, path=path):
        if not _FORGED.search(sentence.text):
            yield Quote(path, sentence.fragments, page, heading or sentence.heading)


def best_quotes(question: str, quotes: Sequence[Quote], *, limit: int) -> list[Quote]:
    """Return the quotes that answer a question best, best first, none twice."""
    ordered = sorted(
        dict.fromkeys(quotes), key=lambda each: (each.path, each.page or 0, each.fragments[0].line)
    )
    if not ordered:
        return []
    texts = list(_with_gaps(ordered))
    ranker = Ranker([text for _, text in texts], embeddings=default_embeddings(), neighbours=1)
    hits = ranker.rank(question, limit=200)
    scored = [replace(found, score=hit.score) for hit in hits if (found := texts[hit.index][0]) is not None]
    weighted = [replace(each, score=each.score * _weight(question, each)) for each in scored]
    return _distinct(question, sorted(weighted, key=lambda each: -each.score), limit)


def _weight(question: str, found: Quote) -> float:
    """Return how likely a sentence is an answer: a number is, if asked for one; a heading rarely is."""
    weight = 1.0 if found.heading or found.page else 0.8
    if _ASKS_NUMBER.search(question) and _NUMBER.search(found.text):
        weight *= 1.4
    return weight


def _with_gaps(quotes: Sequence[Quote]) -> Iterator[tuple[Quote | None, str]]:
    """Yield the text to compare each quote by; an empty one between files, which are no neighbours."""
    before = ""
    for each in quotes:
        if before and each.path != before:
            yield None, ""
        before = each.path
        yield each, f"{PurePosixPath(each.path).stem} {each.heading} {each.text}"


def _distinct(question: str, ranked: Sequence[Quote], limit: int) -> list[Quote]:
    """Return the best quotes, none twice; each word of the question has its best one among them."""
    chosen: list[Quote] = []
    seen: list[frozenset[str]] = []
    unspoken = set(query_terms(question))
    for each in ranked:
        words = frozenset(terms(each.text))
        if len(chosen) == limit:
            break
        if not words or (each.score < FLOOR * ranked[0].score and not words & unspoken):
            continue
        if not any(len(words & other) > 0.8 * len(words | other) for other in seen):
            unspoken -= words
            chosen.append(each)
            seen.append(words)
    return chosen


def cited(found: Quote, *, label: str | None = None) -> str:
    """Return a quote with a citation behind the words of each of its lines."""
    name = re.sub(r"[\[\]\s]", "_", label or PurePosixPath(found.path).name)
    link = _UNSAFE.sub(lambda match: quote(match.group()), found.path)
    parts = []
    for fragment in found.fragments:
        at, anchor = (
            (f"p{found.page}", f"page={found.page}")
            if found.page
            else (str(fragment.line), f"L{fragment.line}")
        )
        parts.append(f"{fragment.text} [citation:{name}:{at}]({link}#{anchor})")
    return " ".join(parts)


def read_cited(text: str) -> Iterator[Quote]:
    """Yield the quotes of a text, list item by list item."""
    for line in text.split("\n"):
        parts = list(_CITED.finditer(line.removeprefix("- "))) if line.startswith("- ") else []
        if parts:
            page = int(parts[0]["number"]) if parts[0]["at"] == "page=" else None
            fragments = tuple(Fragment(int(part["number"]), part["text"].strip()) for part in parts)
            yield Quote(unquote(parts[0]["link"]), fragments, page)


def labels_for(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path the shortest end of it that no other path has."""
    all_paths = list(dict.fromkeys(paths))
    labels = {}
    for path in all_paths:
        parts = path.strip("/").split("/")
        ends = ["/".join(parts[-size:]) for size in range(1, len(parts) + 1)]
        labels[path] = next(
            end for end in ends if sum(other == path or other.endswith(f"/{end}") for other in all_paths) == 1
        )
    return labels
