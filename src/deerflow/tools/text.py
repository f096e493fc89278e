"""Reading and changing text by lines: plain functions behind the file tools."""

import difflib
from dataclasses import dataclass

from deerflow.tools.define import refuse

NAMED_LINES = 20
SEARCHED_LINES = 2000
"""How far the search for a similar line goes; comparing is slow."""
SHOWN_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Replacement:
    """A text after its replacement."""

    text: str
    count: int


def page(text: str, *, start: int | None, end: int | None, max_chars: int) -> str:
    """Return lines `start` to `end` as they are, cut at `max_chars` with a note on how to read on.

    Lines count from 1 and end at a newline only, as grep counts them; a `max_chars` of 0 means no limit.
    """
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    if not lines[-1]:
        lines.pop()
    first, last = _range(start, end, len(lines))
    if first is None:
        return "(empty)"
    wanted = lines[first - 1 : last]
    kept, size = 0, 0
    while kept < len(wanted) and (max_chars <= 0 or size + len(wanted[kept]) <= max_chars):
        size += len(wanted[kept])
        kept += 1
    if kept == len(wanted):
        return "".join(wanted)
    if kept == 0:
        line = wanted[0].removesuffix("\n")
        return line[:max_chars] + _long_line_note(first, len(line), max_chars, len(lines))
    shown = first + kept - 1
    note = f"[Lines {first}-{shown} of {len(lines)} shown; read on with start_line={shown + 1}.]"
    return "".join(wanted[:kept]) + f"\n{note}"


def _range(start: int | None, end: int | None, total: int) -> tuple[int | None, int]:
    first, last = start if start is not None else 1, end if end is not None else total
    if first < 1 or (end is not None and end < 1):
        raise refuse("Lines count from 1: give start_line and end_line of at least 1.")
    if end is not None and end < first:
        raise refuse(f"end_line {end} is before start_line {first}; swap them.")
    if total == 0 and first == 1:
        return None, 0
    if first > total:
        raise refuse(f"The file has {total} lines; start_line {first} is behind its end.")
    return first, min(last, total)


def _long_line_note(line: int, length: int, shown: int, total: int) -> str:
    rest = f" start_line={line + 1} reads on." if line < total else ""
    return (
        f"\n\n[Line {line} of {total} has {length} characters; its first {shown} are shown. "
        f"Use bash (cut -c) for the rest of it.{rest}]"
    )


def replace_text(text: str, old: str, new: str, *, replace_all: bool) -> Replacement:
    """Put `new` for `old`, which must be there, and once only unless all are to be replaced."""
    if not old:
        raise refuse("old_str is empty. Give the text to replace, or use write_file for a whole file.")
    if old == new:
        raise refuse("old_str and new_str are the same; nothing would change.")
    if old not in text and "\r\n" in text:  # models write plain newlines, whatever the file has
        old, new = _with_crlf(old), _with_crlf(new)
    count = text.count(old)
    if count == 0:
        raise refuse(f"old_str is not in the file; it must match exactly.{_hint(text, old)}")
    if count > 1 and not replace_all:
        raise refuse(
            f"old_str occurs {count} times, on lines {_lines_of(text, old)}. Add lines around it until it "
            "is unique, or set replace_all."
        )
    return Replacement(text.replace(old, new), count)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _lines_of(text: str, part: str) -> str:
    numbers: list[str] = []
    line, position = 1, 0
    while (found := text.find(part, position)) >= 0:
        if len(numbers) == NAMED_LINES:
            return ", ".join(numbers) + " …"
        line += text.count("\n", position, found)
        numbers.append(str(line))
        line += part.count("\n")
        position = found + len(part)
    return ", ".join(numbers)


def _hint(text: str, old: str) -> str:
    """Name the line that was probably meant: the same but for spaces, else the most similar."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    if not wanted:
        return ""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip() == wanted:
            return f" Line {number} has its first line: check the spaces and the lines after it."
    short = [line.strip()[:SHOWN_LINE_CHARS] for line in lines[:SEARCHED_LINES]]
    close = difflib.get_close_matches(wanted[:SHOWN_LINE_CHARS], short, n=1)
    return f" The closest is line {short.index(close[0]) + 1}: {close[0]}" if close else ""
