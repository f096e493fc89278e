"""Unified diffs: read and applied exactly, each refusal naming the hunk it is about.

Models count lines badly and write context well. So the numbers of a hunk are only a hint: its lines must
be in the file as they stand, at the place it names or at the only other one.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from deerflow.tools.define import refuse

WORKSPACE = "/mnt/user-data/workspace"
NOTHING = "/dev/null"
MAX_HUNKS = 500
_HEADER = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_NO_NEWLINE = "\\"
_OPENED = {"-": {"old"}, "+": {"new"}, " ": {"old", "new"}}
_BESIDE = ("diff ", "index ", "new file mode", "old mode", "new mode", "similarity ")


@dataclass(slots=True)
class Hunk:
    """A run of lines and what is to stand in its place."""

    number: int
    header: str
    start: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    open_ends: set[str] = field(default_factory=set)
    """Of `old` and `new`, whose last line has no newline."""

    @property
    def content(self) -> str:
        """What a new file has in it."""
        return "\n".join(self.new) + ("" if "new" in self.open_ends else "\n")


@dataclass(slots=True)
class FilePatch:
    """The hunks of one file."""

    path: str
    is_new: bool
    hunks: list[Hunk] = field(default_factory=list)


def parse_patch(text: str) -> list[FilePatch]:
    """Return the files of a unified diff with their hunks."""
    files: list[FilePatch] = []
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    position = 0
    while position < len(lines):
        line = lines[position]
        if line.startswith("--- ") and position + 1 < len(lines) and lines[position + 1].startswith("+++ "):
            files.append(_file(line, lines[position + 1]))
            position += 2
        elif line.startswith("@@"):
            position = _read_hunk(files, lines, position)
        elif not line.strip() or line.startswith(_BESIDE):
            position += 1
        else:
            raise refuse(f"Line {position + 1} of the patch is no part of a unified diff: {line[:120]!r}.")
    _check(files)
    return files


def apply_patch(text: str, patch: FilePatch) -> str:
    """Return `text` with all hunks in it; a hunk that does not fit is named and nothing is changed."""
    ending = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(ending)
    shift = floor = 0
    for hunk in patch.hunks:
        place = _place(lines, hunk, hunk.start - 1 + shift, floor, patch)
        lines[place : place + len(hunk.old)] = hunk.new
        shift += len(hunk.new) - len(hunk.old)
        floor = place + len(hunk.new)
    return ending.join(lines)


def absolute(path: str) -> str:
    """Return a patch's path as tools know it; a relative one is below the workspace."""
    whole = path if path.startswith("/") else f"{WORKSPACE}/{path}"
    return posixpath.normpath(whole)


def _file(old: str, new: str) -> FilePatch:
    before, after = _named(old), _named(new)
    if after == NOTHING:
        raise refuse(f"The patch would delete {before}. Delete files with bash, and send the rest again.")
    source, target = _plain(before, "a/"), _plain(after, "b/")
    if before != NOTHING and source != target:
        raise refuse(f"The patch would rename {source} to {target}. Rename files with bash (mv) first.")
    return FilePatch(target, is_new=before == NOTHING)


def _named(line: str) -> str:
    """Return the name in a `---` or `+++` line, without the time that diff puts behind a tab."""
    return line[4:].split("\t", 1)[0].strip()


def _plain(name: str, prefix: str) -> str:
    if name.startswith(prefix):
        name = name.removeprefix(prefix)
        return absolute(f"/{name}" if name.startswith("mnt/") else name)
    return absolute(name)


def _read_hunk(files: Sequence[FilePatch], lines: list[str], position: int) -> int:
    if not files:
        raise refuse("The patch starts with a hunk; put '--- path' and '+++ path' in front of it.")
    hunks = files[-1].hunks
    header = _HEADER.match(lines[position])
    if header is None:
        raise refuse(f"'{lines[position][:80]}' is no hunk header; write it like @@ -12,3 +12,4 @@.")
    hunk = Hunk(len(hunks) + 1, header.group(), int(header.group(1)))
    hunks.append(hunk)
    position += 1
    first = position
    while position < len(lines) and not _ends(lines, position):
        _take(hunk, lines[position], lines[position - 1])
        position += 1
    while position > first and not lines[position - 1]:  # an empty line between two files is no context
        position -= 1
        hunk.old.pop()
        hunk.new.pop()
    _close(hunk)
    return position


def _ends(lines: list[str], position: int) -> bool:
    line = lines[position]
    following = lines[position + 1] if position + 1 < len(lines) else ""
    is_next_file = line.startswith("--- ") and following.startswith("+++ ")
    return is_next_file or line.startswith(("@@", "diff --git "))


def _take(hunk: Hunk, line: str, before: str) -> None:
    sign, rest = line[:1], line[1:].removesuffix("\r")
    if sign == _NO_NEWLINE:
        hunk.open_ends |= _OPENED.get(before[:1], set())
        return
    if sign not in ("+", "-", " ", ""):
        raise refuse(
            f"Hunk {hunk.number} ({hunk.header}) has a line that starts with none of ' ', '+' and '-': "
            f"{line[:120]!r}."
        )
    if sign != "+":
        hunk.old.append(rest)
    if sign != "-":
        hunk.new.append(rest)


def _close(hunk: Hunk) -> None:
    """Write an end without newline as split text has it: what ends with one has an empty line behind it."""
    if hunk.open_ends == {"old"}:
        hunk.new.append("")
    elif hunk.open_ends == {"new"} and hunk.old:
        hunk.old.append("")
    if hunk.old == hunk.new:
        raise refuse(f"Hunk {hunk.number} ({hunk.header}) changes nothing; leave it out.")


def _check(files: Sequence[FilePatch]) -> None:
    if not any(file.hunks for file in files):
        raise refuse("The patch has no hunks; write '--- path', '+++ path' and '@@ -1,2 +1,3 @@' with lines.")
    if sum(len(file.hunks) for file in files) > MAX_HUNKS:
        raise refuse(f"The patch has more than {MAX_HUNKS} hunks; send it in parts.")
    names = [file.path for file in files]
    for file in files:
        if names.count(file.path) > 1:
            raise refuse(f"{file.path} stands in the patch twice; put all of its hunks under one header.")
        if file.is_new and (len(file.hunks) != 1 or file.hunks[0].old):
            raise refuse(f"{file.path} is new: it needs exactly one hunk, with '+' lines only.")


def _place(lines: list[str], hunk: Hunk, wanted: int, floor: int, patch: FilePatch) -> int:
    """Return where a hunk goes: at the line it names, else at the only place that has its lines."""
    if not hunk.old:
        return max(floor, min(wanted + 1, len(lines)))
    if wanted >= floor and _fits(lines, hunk.old, wanted):
        return wanted
    last = len(lines) - len(hunk.old)
    found = [at for at in range(floor, last + 1) if lines[at] == hunk.old[0] and _fits(lines, hunk.old, at)]
    if len(found) == 1:
        return found[0]
    where = f"Hunk {hunk.number} ({hunk.header}) of {patch.path}"
    if found:
        numbers = ", ".join(str(at + 1) for at in found[:10])
        raise refuse(f"{where} fits at several lines ({numbers}). Nothing was changed. Add lines around it.")
    raise refuse(f"{where} does not fit. Nothing was changed. {_difference(lines, hunk, wanted)}")


def _fits(lines: list[str], old: list[str], at: int) -> bool:
    return lines[at : at + len(old)] == old


def _difference(lines: list[str], hunk: Hunk, wanted: int) -> str:
    """Say which line of the hunk is not what the file has."""
    best, matched = max(wanted, 0), -1
    for at, line in enumerate(lines):
        if line == hunk.old[0]:
            count = next(
                (n for n, old in enumerate(hunk.old) if at + n >= len(lines) or lines[at + n] != old),
                len(hunk.old),
            )
            if count > matched:
                best, matched = at, count
    matched = max(matched, 0)
    here = best + matched
    has = repr(lines[here][:120]) if here < len(lines) else "nothing: the file ends"
    return (
        f"It wants {hunk.old[matched][:120]!r} at line {here + 1}, where the file has {has}. "
        "Read the file and write the hunk anew."
    )
