"""Reads what the file tools answer: found passages, files, and what was left out."""

import re
from dataclasses import dataclass

from deerflow.retrieval.quotes import Quote, quotes_of

_BLOCK = re.compile(r"^## (/.+) \((?:page (?P<page>\d+)|lines [\d-]+); score [\d.]+(?:; (?P<above>.*))?\)$")
_NUMBERED = re.compile(r"(\d+): ?(.*)")
_NOT_SEARCHED = re.compile(r"^Not searched: (.*)$", re.M)
_LISTED = re.compile(r"^- (/.+)$", re.M)
_DOCUMENTS = (".pdf", ".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx", ".eml", ".epub")
_TABLES = (".csv", ".tsv")
_PAGE_NOTE = re.compile(r"\[Lines \d+-\d+ of \d+ shown; .*\]$")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What `search_files` found."""

    quotes: tuple[Quote, ...]
    files: tuple[str, ...]
    """The searched files if they are few, else those with passages, best first."""
    omitted: tuple[str, ...]
    """Files that were not searched, each with the reason."""


def read_search(text: str) -> SearchResult:
    """Return what an answer of `search_files` holds."""
    quotes: list[Quote] = []
    for block in text.split("\n\n"):
        head, _, body = block.partition("\n")
        if match := _BLOCK.match(head):
            lines = [
                (int(found[1]), found[2]) for line in body.split("\n") if (found := _NUMBERED.match(line))
            ]
            page = int(match["page"]) if match["page"] else None
            quotes += quotes_of(match[1], lines, page=page, heading=match["above"] or "")
    listed = _LISTED.findall(text.partition("\n\n")[0])
    files = tuple(listed or dict.fromkeys(each.path for each in quotes))
    return SearchResult(tuple(quotes), files, tuple(_NOT_SEARCHED.findall(text)))


def read_text(path: str, text: str) -> list[Quote]:
    """Return the sentences of a file as `read_file` shows it; a table's rows come from the search."""
    if path.lower().endswith(_TABLES):
        return []
    lines = [line for line in text.split("\n") if not _PAGE_NOTE.match(line)]
    return list(quotes_of(path, enumerate(lines, start=1)))


def is_document(path: str) -> bool:
    """Return whether a file has to be converted to be read."""
    return path.lower().endswith(_DOCUMENTS)
