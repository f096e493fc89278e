"""Cuts a file into sentences that know on which lines they stand."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

LONGEST_SENTENCE = 400
"""Longer ones are cut, so that a line without full stops cannot fill a report."""

LONGEST_BLOCK = 40
"""Lines of one paragraph; bounds the work on a file without blank lines."""

_DATA_NAMES = """
c cc cpp cs css csv go h ini java js json jsonl kt log lua php pl properties py rb rs scss sh sql swift toml
ts tsv tsx xml yaml yml
"""
_DATA_ENDINGS = frozenset(f".{name}" for name in _DATA_NAMES.split())
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"[\s|:=*_+-]*$")
_MARKER = re.compile(
    r"\s*(?:>\s*)*(?:[-*+•]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)、]\s*(?=\D)|[（(]\d{1,3}[）)]\s*)?"
)
_STARTS_ITEM = re.compile(r"\s*(?:>\s*)*(?:[-*+•]\s|\d{1,3}[.)、]\s*\D|[（(]\d{1,3}[）)]|\|)")
_END = re.compile(
    r"[.!?]+[\"'”’)\]*_]*(?=\s+[^\sa-z])|[.!?]+[\"'”’)\]]*(?=[\u3400-\u9fff])|[。！？；…]+[\"'”’」』）]*"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|al|approx|Dr|Mr|Mrs|Ms|Prof|St|Fig|No|Sec|Inc|Ltd|Jr|Sr)|\b[A-Z])\.$"
)


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a sentence that stands on one line, exactly as it stands there."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, line by line, and the heading above it."""

    fragments: tuple[Fragment, ...]
    heading: str = ""
    cut: bool = False
    """The sentence goes on in the file."""

    @property
    def text(self) -> str:
        return " ".join(fragment.text for fragment in self.fragments)


NumberedLine = tuple[int, str]


def sentences_of(lines: Iterable[NumberedLine], *, path: str) -> list[Sentence]:
    """Return the sentences of numbered lines; code and data count line by line."""
    if PurePosixPath(path).suffix.lower() in _DATA_ENDINGS:
        return [
            _cut((Fragment(number, text.strip()),), "") for number, text in lines if not _RULE.match(text)
        ]
    return [sentence for heading, block in _blocks(lines) for sentence in _split(block, heading)]


def _blocks(lines: Iterable[NumberedLine]) -> Iterator[tuple[str, list[NumberedLine]]]:
    """Yield paragraphs, list items, table rows and code lines, each with the heading it stands under."""
    heading, block, fenced, previous = "", list[NumberedLine](), False, 0
    for number, text in lines:
        title = None if fenced else _HEADING.match(text)
        fence = _FENCE.match(text)
        starts = fenced or _STARTS_ITEM.match(text) is not None
        ends = bool(title or fence or starts or number != previous + 1 or _RULE.match(text))
        if block and (ends or len(block) == LONGEST_BLOCK or block[-1][1].lstrip().startswith("|")):
            yield heading, block
            block = []
        previous = number
        if fence:
            fenced = not fenced
        elif title:
            heading = title.group(1)
            yield "", [(number, heading)]
        elif not _RULE.match(text):
            block.append((number, text))
    if block:
        yield heading, block


def _split(block: list[NumberedLine], heading: str) -> Iterator[Sentence]:
    starts, pieces, length = [], [], 0
    for index, (_, text) in enumerate(block):
        marker = _MARKER.match(text) if index == 0 or text.lstrip().startswith(">") else None
        piece = text[marker.end() if marker else 0 :].strip().strip("|").strip()
        starts.append(length)
        pieces.append(piece)
        length += len(piece) + 1
    joined = "\n".join(pieces)
    begin = first = 0
    for end in [*_ends(joined), len(joined)]:
        fragments = []
        for index in range(first, len(pieces)):
            if starts[index] >= end:
                break
            first = index  # the next sentence begins on the line where this one ends
            part = pieces[index][max(0, begin - starts[index]) : end - starts[index]].strip()
            if part:
                fragments.append(Fragment(block[index][0], part))
        begin = end
        if fragments:
            yield _cut(tuple(fragments), heading)


def _ends(text: str) -> Iterator[int]:
    for match in _END.finditer(text):
        before = text[max(0, match.start() - 8) : match.start() + 1]
        if not (match.group().startswith(".") and _ABBREVIATION.search(before)):
            yield match.end()


def _cut(fragments: tuple[Fragment, ...], heading: str) -> Sentence:
    kept, room = list[Fragment](), LONGEST_SENTENCE
    for fragment in fragments:
        if len(fragment.text) > room:
            if room >= 40 or not kept:
                kept.append(Fragment(fragment.line, shortened(fragment.text, room)))
            return Sentence(tuple(kept), heading, cut=True)
        kept.append(fragment)
        room -= len(fragment.text)
    return Sentence(tuple(kept), heading)


def shortened(text: str, limit: int) -> str:
    """Return the start of `text`, ending at a word's end where there is one."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    space = head.rfind(" ")
    return (head[:space] if space > limit // 2 else head).rstrip(" ,;:，；：、")
