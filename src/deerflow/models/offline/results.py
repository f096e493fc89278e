"""Reads what the file tools answer: pages of text, found lines, lists of paths."""

import posixpath
import re
from dataclasses import dataclass

_NOTE = re.compile(
    r"^\s*[\[(].*\b(?:lines?|characters?|chars|bytes|truncated|start_line|omitted)\b.*[\])]\s*$", re.I
)
_SPAN = re.compile(r"\blines?\s+(\d+)(?:\s*[-–]\s*(\d+))?\s+of\s+(\d+)", re.I)
_LEFT_OUT = re.compile(
    r"^\s*[\[(.…]*.*\b\d+\b.*\b(?:characters?|chars|bytes|lines?)\b.*\b(?:left out|omitted|truncated)\b", re.I
)
_EMPTY = re.compile(r"^\s*+[\[(<]?\s*+(?:the |this )?(?:file is )?empty(?: file)?\s*+[\])>.]*+\s*+$", re.I)
_NUMBERED = re.compile(r"^\s*(\d+)(?:\t|→|: ?|\| ?|$)")
_HIT = re.compile(r"^(?P<path>.+?):(?P<line>\d+):[ \t]?(?P<text>.*)$")
_PATH_LINE = re.compile(r"^\s*(?:\d+[.)]\s+|[-*]\s+)?(?P<path>/.+?|[\w.][^\s:]*)\s*$")


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines of a file as `read_file` showed them."""

    start: int
    lines: tuple[str, ...]
    total: int | None
    """How many lines the file has, where the tool said so."""
    is_last: bool


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that `grep` found."""

    path: str
    line: int
    text: str


def read_page(text: str, *, start: int, end: int) -> Page:
    """Return the lines that `read_file` gave for lines `start` to `end`."""
    if _EMPTY.match(text) or not text:
        return Page(start, (), start - 1, is_last=True)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    note = lines.pop() if _NOTE.match(lines[-1]) else ""
    if note and lines and not lines[-1]:
        lines.pop()  # the tool sets its note apart by an empty line
    if lines and _SPAN.search(lines[0]) and _NOTE.match(lines[0]):
        note = lines.pop(0)
    total, lines = _within_span(note, lines)
    whole = _up_to_gap(_without_numbers(lines, start))
    is_cut = bool(note) or len(whole) < len(lines)
    is_last = len(whole) < end - start + 1 and not is_cut
    return Page(start, tuple(whole), start + len(whole) - 1 if is_last else total, is_last)


def read_hits(text: str, *, path: str) -> list[Hit]:
    """Return the lines that `grep` found below `path`."""
    hits = []
    for line in text.split("\n"):
        if match := _HIT.match(line):
            where = match["path"] if match["path"].startswith("/") else posixpath.join(path, match["path"])
            hits.append(
                Hit(where, int(match["line"]), match["text"].strip().removesuffix("…").removesuffix("..."))
            )
    return hits


def read_paths(text: str, *, path: str) -> list[str]:
    """Return the files that `ls` or `glob` listed below `path`."""
    found = []
    for line in text.split("\n"):
        match = _PATH_LINE.match(line)
        if not match or match["path"].endswith("/") or line.lstrip().startswith(("[", "(")):
            continue
        full_path = match["path"] if match["path"].startswith("/") else posixpath.join(path, match["path"])
        if "/" in match["path"] or "." in match["path"]:
            found.append(full_path)
    return list(dict.fromkeys(found))


def _within_span(note: str, lines: list[str]) -> tuple[int | None, list[str]]:
    """Keep as many lines as the note says were shown."""
    span = _SPAN.search(note)
    if not span:
        return None, lines
    first, last, total = int(span[1]), int(span[2] or span[1]), int(span[3])
    return total, lines[: last - first + 1]


def _up_to_gap(lines: list[str]) -> list[str]:
    """Drop what follows a gap: behind it, lines can no longer be counted."""
    for number, line in enumerate(lines):
        # Never the first line: a tool that leaves something out shows the start, so this is the file's own.
        if number and line[:1] in ("[", "(", "…", ".") and _LEFT_OUT.match(line):
            return lines[:number]
    return lines


def _without_numbers(lines: list[str], start: int) -> list[str]:
    """Take the line numbers away when every line begins with its own."""
    matches = [_NUMBERED.match(line) for line in lines]
    if not all(match and int(match[1]) == start + offset for offset, match in enumerate(matches)):
        return lines
    return [line[match.end() :] for line, match in zip(lines, matches, strict=True) if match]
