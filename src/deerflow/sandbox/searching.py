"""Walks folders and searches files; also runs as a separate program, so that a search can be killed.

`re` holds the GIL while it matches, so a hostile pattern would block the whole server. The search therefore
runs in a child process that executes this file without site-packages: it may import only the standard
library. Folders are opened by descriptor, and links are never followed.
"""

import fnmatch
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

_IGNORED_NAMES = """
.git .svn .hg node_modules bower_components venv .venv env __pycache__ dist build target out .next .nuxt
.cache .tox .nox .mypy_cache .pytest_cache .ruff_cache .turbo .gradle .idea .vscode .DS_Store coverage
"""
IGNORED = frozenset(_IGNORED_NAMES.split())
"""Names that listings and searches skip; such a folder can still be listed or searched explicitly."""

MAX_FILE_BYTES = 1_048_576
MAX_LINE_CHARS = 200
MAX_DEPTH = 64
MAX_ENTRIES = 1_000_000
MAX_GLOB_COST = 256
"""Maximum `glob_cost` of a glob; realistic globs need a tenth of it."""
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_OPEN_FILE = _OPEN | getattr(os, "O_NONBLOCK", 0)
_OPEN_FOLDER = _OPEN | getattr(os, "O_DIRECTORY", 0)

Folder = int | str
"""Descriptor of an open folder, or its path on systems without `dir_fd` support."""

PathFilter = Callable[[str], bool]
"""Returns whether a path, relative to the searched folder, matches."""


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """An entry of a folder; `folder` is open only until the walk continues."""

    path: str
    name: str
    folder: Folder
    is_dir: bool


def walk(folder: Folder, *, prefix: str = "", depth: int = MAX_DEPTH) -> Iterator[WalkEntry]:
    """Yield the sorted entries below the open `folder` without ignored names; links are not followed."""
    with os.scandir(folder) as found:
        # a link is listed but never entered: is_dir does not follow it
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    for name, is_dir in entries:
        if name in IGNORED:
            continue
        path = f"{prefix}{name}"
        yield WalkEntry(path, name, folder, is_dir)
        if is_dir and depth > 1:
            try:
                deeper = _open(folder, name, _OPEN_FOLDER) if isinstance(folder, int) else f"{folder}/{name}"
            except OSError:
                continue  # removed, replaced by a link, or not readable
            try:
                yield from walk(deeper, prefix=f"{path}/", depth=depth - 1)
            finally:
                if isinstance(deeper, int):
                    os.close(deeper)


def _open(folder: Folder, name: str, flags: int) -> int:
    if isinstance(folder, int):
        return os.open(name, flags, dir_fd=folder)
    return os.open(f"{folder}/{name}", flags)


def path_filter(pattern: str) -> PathFilter:
    """Compile a glob (`*`, `?`, `[…]`, `{a,b}`, `**`); one without a slash matches at any depth."""
    alternatives = [_one_filter(text) for text in _expand_braces(pattern)]
    return lambda path: any(matches(path) for matches in alternatives)


def _one_filter(pattern: str) -> PathFilter:
    if "/" not in pattern.strip("/"):
        pattern = f"**/{pattern.strip('/')}"
    names = _names(pattern)
    if names[:1] == ["**"] and len(names) == 2 and names[1] != "**":
        last = re.compile(fnmatch.translate(names[1]))
        return lambda path: last.match(path.rpartition("/")[2]) is not None
    tests = [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]
    return lambda path: _matches_parts(path.split("/"), tests)


def glob_cost(pattern: str) -> int:
    """Return the number of path components in all alternatives of a glob: the comparisons per path."""
    return sum(len(_names(text)) for text in _expand_braces(pattern))


def _names(pattern: str) -> list[str]:
    """Return the components between slashes; `**/**` is reduced to `**`."""
    names = [part for part in pattern.split("/") if part not in ("", ".")]
    return [name for at, name in enumerate(names) if name != "**" or names[at - 1 : at] != ["**"]]


def _matches_parts(parts: list[str], tests: list[re.Pattern[str] | None]) -> bool:
    """Match path components against tests; None matches any number of components."""
    reachable = {0}
    for part in [*parts, None]:
        for index in sorted(reachable):  # '**' may match zero components: skip it
            while index < len(tests) and tests[index] is None:
                index += 1
                reachable.add(index)
        if part is None:
            return len(tests) in reachable
        remaining = [(index, tests[index]) for index in reachable if index < len(tests)]
        reachable = {index for index, test in remaining if test is None}
        reachable |= {index + 1 for index, test in remaining if test is not None and test.match(part)}
    return False


def _expand_braces(pattern: str, limit: int = 64) -> list[str]:
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if not found or limit < 1:
        return [pattern]
    choices = found.group(1).split(",")
    before, after, limit = pattern[: found.start()], pattern[found.end() :], limit // len(choices)
    expanded = [text for choice in choices for text in _expand_braces(before + choice + after, limit)]
    return expanded[:64]


class LineSearch:
    """Finds the lines of a file that match a pattern."""

    def __init__(self, pattern: str, *, literal: bool, case_sensitive: bool) -> None:
        text = re.escape(pattern) if literal else pattern
        flags = re.MULTILINE | (0 if case_sensitive else re.IGNORECASE)
        self._line: re.Pattern[str] = re.compile(text, flags)
        # One search over the whole file rules most files out. Not for a pattern with lookaround, \A or \Z,
        # or a possessive quantifier: over the whole file it may match differently than in a single line.
        self._is_plain = not re.search(r"\(\?|\\[AZ]|[*+?}]\+", text)

    def lines(self, data: bytes) -> Iterator[tuple[int, str]]:
        """Yield number and excerpt of each matching line; nothing for a binary file."""
        if b"\0" in data[:8192]:
            return
        text = data.decode("utf-8", "replace")
        if self._is_plain and not self._line.search(text):
            return
        for number, line in enumerate(text.split("\n"), 1):
            found = self._line.search(line)
            if found:
                yield number, summary(line.rstrip("\r"), found.start())


def summary(line: str, start: int) -> str:
    """Return `line`, or the excerpt of 200 characters in which the match starts."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    begin = 0 if start < MAX_LINE_CHARS // 2 else start - MAX_LINE_CHARS // 4
    return f"{'…' if begin else ''}{line[begin : begin + MAX_LINE_CHARS]}…"


def read_small(name: str, folder: Folder) -> bytes | None:
    """Return the bytes of a regular file with a single hard link and at most 1 MB, else None."""
    try:
        file = _open(folder, name, _OPEN_FILE)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1 or about.st_size > MAX_FILE_BYTES:
            return None
        return os.read(file, about.st_size + 1) if about.st_size else b""
    except OSError:
        return None
    finally:
        os.close(file)


def search_folder(
    folder: Folder, search: LineSearch, *, matches: PathFilter | None, until: float
) -> Iterator[tuple[str, int, str]]:
    """Yield path, line number and excerpt of each match below the open `folder`."""
    for count, entry in enumerate(walk(folder)):
        if count >= MAX_ENTRIES or time.monotonic() > until:
            raise TimeoutError
        if entry.is_dir or (matches is not None and not matches(entry.path)):
            continue
        data = read_small(entry.name, entry.folder)
        if data:
            for number, text in search.lines(data):
                yield entry.path, number, text


def serve(request: dict[str, Any], out: TextIO) -> None:
    """Run one search: write a JSON line per match `[root, path, line, text]`, then `{"more": …}`.

    For an invalid regular expression the only line is `{"invalid": reason}`.
    """
    try:
        search = LineSearch(
            request["pattern"], literal=request["literal"], case_sensitive=request["case_sensitive"]
        )
    except (re.error, OverflowError, RecursionError) as error:
        out.write(json.dumps({"invalid": str(error)}) + "\n")
        return
    matches = path_filter(request["glob"]) if request["glob"] else None
    until = time.monotonic() + request["seconds"]
    left = request["max_results"]
    try:
        for index, folder in enumerate(request["folders"]):
            if "file" in request:
                name = request["file"]
                lines = search.lines(read_small(name, folder) or b"")
                found: Iterator[tuple[str, int, str]] = ((name, number, text) for number, text in lines)
            else:
                found = search_folder(folder, search, matches=matches, until=until)
            for path, number, text in found:
                if left == 0:
                    raise TimeoutError
                left -= 1
                out.write(json.dumps([index, path, number, text]) + "\n")
                if left % 16 == 0:
                    out.flush()
    except TimeoutError:
        out.write('{"more": true}\n')
    else:
        out.write('{"more": false}\n')


if __name__ == "__main__":
    serve(json.load(sys.stdin), sys.stdout)
