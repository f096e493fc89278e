"""Split texts into passages that know their place: lines, headings and page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 1200
"""Of a passage: long enough for a paragraph with its context, short enough for one subject."""
_HEADING = re.compile(r"(#{1,6})\s+(.*\S)")
_FENCE = re.compile(r"\s*(```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_PAGE_BREAK = "\f"


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text and its place."""

    text: str
    first_line: int
    """Counted from 1."""
    last_line: int
    headings: tuple[str, ...] = ()
    """The headings above it, outermost first."""
    page: int | None = None
    """Counted from 1; None for texts without page breaks (form feeds)."""

    @property
    def searchable(self) -> str:
        """The text with its headings, for indexing."""
        return "\n".join((*self.headings, self.text))


@dataclass(slots=True)
class _Position:
    """Where in the text the reader is."""

    headings: list[tuple[int, str]]
    page: int
    is_code: bool = False


def passages(text: str, *, max_chars: int = MAX_CHARS) -> list[Passage]:
    """Return the passages of a text: paragraphs joined up to `max_chars`, never across a heading or page."""
    has_pages = _PAGE_BREAK in text
    found: list[Passage] = []
    for block in _blocks(text, max_chars, has_pages=has_pages):
        last = found[-1] if found else None
        if last and _belongs_to(last, block) and len(last.text) + len(block.text) + 2 <= max_chars:
            gap = "\n" * max(block.first_line - last.last_line, 1)
            found[-1] = Passage(
                last.text + gap + block.text, last.first_line, block.last_line, last.headings, last.page
            )
        else:
            found.append(block)
    return found


def _belongs_to(last: Passage, block: Passage) -> bool:
    return (last.headings, last.page) == (block.headings, block.page) and block.first_line > last.last_line


def _blocks(text: str, max_chars: int, *, has_pages: bool) -> Iterator[Passage]:
    """Yield paragraphs with their places; long ones in parts."""
    position = _Position([], 1)
    lines: list[str] = []
    first = 1

    def flush(last_line: int) -> Iterator[Passage]:
        if any(line.strip() for line in lines):
            headings = tuple(title for _, title in position.headings)
            page = position.page if has_pages else None
            yield from _split(lines, first, max_chars, headings, page)
        lines.clear()

    number = 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        for index, part in enumerate(line.split(_PAGE_BREAK)):
            if index:
                yield from flush(number)
                position.page += 1
            heading = None if position.is_code else _HEADING.fullmatch(part)
            if _FENCE.match(part):
                position.is_code = not position.is_code
            if heading or (not part.strip() and not position.is_code):
                yield from flush(number - 1)
                if heading:
                    _enter(position, len(heading[1]), heading[2].rstrip("# "))
                continue
            if not lines:
                first = number
            lines.append(part)
    yield from flush(number)


def _enter(position: _Position, level: int, title: str) -> None:
    position.headings = [one for one in position.headings if one[0] < level]
    position.headings.append((level, title))


def _split(
    lines: list[str], first: int, max_chars: int, headings: tuple[str, ...], page: int | None
) -> Iterator[Passage]:
    """Yield the lines of a paragraph as passages of at most `max_chars`."""
    held: list[str] = []
    start, size = first, 0
    for number, line in enumerate(lines, start=first):
        for piece in _pieces(line, max_chars):
            if held and size + len(piece) + 1 > max_chars:
                yield Passage("\n".join(held), start, max(number - 1, start), headings, page)
                held, size = [], 0
            if not held:
                start = number
            held.append(piece)
            size += len(piece) + 1
    if held:
        yield Passage("\n".join(held), start, first + len(lines) - 1, headings, page)


def _pieces(line: str, max_chars: int) -> Iterator[str]:
    """Yield a line whole, or at most `max_chars` of it at a time, cut between sentences where possible."""
    if len(line) <= max_chars:
        yield line
        return
    held = ""
    for sentence in _SENTENCE_END.split(line):
        if held and len(held) + len(sentence) + 1 > max_chars:
            yield held
            held = ""
        while len(sentence) > max_chars:
            yield sentence[:max_chars]
            sentence = sentence[max_chars:]
        held = f"{held} {sentence}".strip() if held and not is_wide_end(held) else held + sentence
    if held:
        yield held


def is_wide_end(text: str) -> bool:
    """Return whether a text ends with Chinese punctuation, after which no space belongs."""
    return text.endswith(("。", "！", "？"))
