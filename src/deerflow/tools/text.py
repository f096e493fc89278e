"""Reads and edits text by lines: pure functions behind the file tools."""

from dataclasses import dataclass

from deerflow.tools.define import refuse

NAMED_LINES = 20
SEARCHED_LINES = 2000
"""Maximum lines searched for a similar one; comparing is slow."""
SIMILAR = 0.6
MAX_EDITED_BYTES = 8 * 1024 * 1024
_STEP_CHARS = 65_536
SHOWN_LINE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Replacement:
    """A text after a replacement, and the number of occurrences replaced."""

    text: str
    count: int


def decoded(content: bytes, path: str) -> str:
    """Return the text of a file to be edited."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refuse(f"{path} is not UTF-8 text. Change it with a program run by bash.") from error


def page(text: str, *, start: int | None, end: int | None, max_chars: int) -> str:
    """Return lines `start` to `end` unchanged, truncated at `max_chars` with a note on how to read on.

    Lines count from 1 and end only at a newline, as grep counts them; a `max_chars` of 0 means no limit.
    The text is never split into a list of lines: a large file may have millions of them.
    """
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    first, last = _range(start, end, total)
    if first is None:
        return "(empty)"
    begin = _line_start(text, first)
    stop = len(text) if last == total else _line_start(text, last + 1, after=(first, begin))
    if max_chars <= 0 or stop - begin <= max_chars:
        return text[begin:stop]
    cut = text.rfind("\n", begin, begin + max_chars) + 1
    if cut <= begin:
        line_end = text.find("\n", begin)
        length = (line_end if line_end >= 0 else len(text)) - begin
        return text[begin : begin + max_chars] + _long_line_note(first, length, max_chars, total)
    shown = first + text.count("\n", begin, cut) - 1
    note = f"[Lines {first}-{shown} of {total} shown; read on with start_line={shown + 1}.]"
    return text[begin:cut] + f"\n{note}"


def _line_start(text: str, line: int, *, after: tuple[int, int] = (1, 0)) -> int:
    """Return the offset of a line, counting in large steps from a line whose offset is known."""
    number, position = after
    while (there := text.count("\n", position, position + _STEP_CHARS)) < line - number:
        number, position = number + there, position + _STEP_CHARS
    while number < line:
        number, position = number + 1, text.index("\n", position) + 1
    return position


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
    """Replace `old` by `new`; `old` must occur exactly once, unless `replace_all` is set."""
    if not old:
        raise refuse("old_str is empty. Give the text to replace, or use write_file for a whole file.")
    if old == new:
        raise refuse("old_str and new_str are the same; nothing would change.")
    if old not in text and "\r\n" in text:  # models write \n even if the file has \r\n
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
    """Name the line that was probably meant: equal except for spaces, else the most similar."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    if not wanted:
        return ""
    lines = [line.strip() for line in text.split("\n", SEARCHED_LINES)[:SEARCHED_LINES]]
    if wanted in lines:
        number = lines.index(wanted) + 1
        return f" Line {number} has its first line: check the spaces and the lines after it."
    close = max(lines, key=lambda line: _similarity(line[:SHOWN_LINE_CHARS], wanted[:SHOWN_LINE_CHARS]))
    if _similarity(close[:SHOWN_LINE_CHARS], wanted[:SHOWN_LINE_CHARS]) < SIMILAR:
        return ""
    return f" The closest is line {lines.index(close) + 1}: {close[:SHOWN_LINE_CHARS]}"


def _similarity(one: str, other: str) -> float:
    """Return the share of common character pairs of two lines, from 0 to 1, in linear time."""
    pairs, others = ({text[at : at + 2] for at in range(len(text) - 1)} for text in (one, other))
    return 2 * len(pairs & others) / max(len(pairs) + len(others), 1)
