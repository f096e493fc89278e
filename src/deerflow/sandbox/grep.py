"""Searches files: with Python in a child process that can be killed, or with ripgrep inside a sandbox.

`searching.py` is the child's program; it may import only the standard library. Both searches give the same
results; ripgrep is faster on a large tree and is used where a sandbox can run it.
"""

import asyncio
import json
import os
import shutil
import stat
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deerflow.errors import SandboxError
from deerflow.sandbox import searching
from deerflow.sandbox.base import Match
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.openat2 import open_beneath
from deerflow.sandbox.paths import ResolvedPath, shown
from deerflow.sandbox.searching import (
    IGNORED,
    MAX_FILE_BYTES,
    MAX_GLOB_COST,
    Folder,
    PathFilter,
    glob_cost,
    path_filter,
    summary,
)

GREP_MAX_RESULTS = 500
GREP_SECONDS = 20.0
RG_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where ripgrep is looked for: folders that are visible in sandboxes."""
RG_MAX_GLOB_COST = 8
"""A more complex glob would take too long to match against ripgrep's lines on the event loop."""
_RG_LINE_COLUMNS = 2000
_RG_EXIT_CODES = (0, 1)
"""Exit codes of ripgrep with and without matches; others mean that it did not accept the pattern."""


@dataclass(frozen=True, slots=True)
class Query:
    """Parameters of a search."""

    pattern: str
    glob: str | None
    literal: bool
    case_sensitive: bool
    max_results: int

    def checked(self) -> "Query":
        """Return the query with `max_results` bounded; raise `SandboxError` for an invalid pattern or glob.

        The child process validates the regular expression: compiling a hostile one can take arbitrarily
        long.
        """
        if not self.pattern or len(self.pattern) > 4000:
            raise SandboxError("the pattern must have 1 to 4000 characters")
        if self.glob is not None:
            if not self.glob or len(self.glob) > 1000:
                raise SandboxError("the glob must have 1 to 1000 characters, such as *.py")
            if glob_cost(self.glob) > MAX_GLOB_COST:
                raise SandboxError("the glob has too many parts; use fewer '/' and fewer {…,…}")
        return replace(self, max_results=max(1, min(self.max_results, GREP_MAX_RESULTS)))

    @property
    def suits_ripgrep(self) -> bool:
        return self.glob is None or glob_cost(self.glob) <= RG_MAX_GLOB_COST


async def grep(
    files: ThreadFiles, path: str, query: Query, *, seconds: float = GREP_SECONDS
) -> tuple[list[Match], bool]:
    """Return the matching lines below `path`, and whether the results were truncated."""
    request = {**asdict(query.checked()), "seconds": seconds}
    roots = files.table.resolve_folders(path)
    if len(roots) == 1 and await asyncio.to_thread(_is_file, files, roots[0]):
        [file] = roots  # named relative to its open parent folder
        request["file"] = file.parts[-1]
        roots = [ResolvedPath(file.mapping, file.parts[:-1])]
    with ExitStack() as stack:
        roots = [root for root in roots if root.parts or root.mapping.host.is_dir()]
        folders = [stack.enter_context(files.open_folder(root)) for root in roots]
        rows, more = await _search(request, folders, seconds)
    return [Match(shown(f"{roots[at].virtual}/{name}"), line, text) for at, name, line, text in rows], more


def _is_file(files: ThreadFiles, path: ResolvedPath) -> bool:
    if not path.parts:
        return False
    try:
        with files.open_folder(path):
            return False
    except SandboxError:
        return True


async def _search(request: dict[str, Any], folders: list[Folder], seconds: float) -> tuple[list[Any], bool]:
    """Run the request in a child process; return its rows so far when the time is up."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", searching.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=[folder for folder in folders if isinstance(folder, int)],
        env={},
        limit=1 << 22,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(seconds + 1):
            worker.stdin.write(json.dumps({**request, "folders": folders}).encode())
            worker.stdin.close()
            while line := await worker.stdout.readline():
                lines.append(line)
            await worker.wait()
    except TimeoutError:
        pass
    finally:
        if worker.returncode is None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()
    return _parse_rows(lines, seconds)


def _parse_rows(lines: list[bytes], seconds: float) -> tuple[list[Any], bool]:
    rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
    if rows and isinstance(rows[-1], dict):
        end = rows.pop()
        if "invalid" in end:
            raise SandboxError(
                f"the pattern is not a valid regular expression ({end['invalid']}); "
                "escape special characters or set literal to true"
            )
        return rows, bool(end["more"])
    if not rows:
        raise SandboxError(
            f"the search did not finish within {seconds:g}s; use a simpler pattern, a narrower path or a glob"
        )
    return rows, True


def find_rg() -> Path | None:
    """Return the system's ripgrep; None when not installed."""
    found = shutil.which("rg", path=RG_PATH)
    return Path(found) if found else None


def rg_argv(rg: Path, query: Query) -> list[str]:
    """Return ripgrep's command line; it searches its working directory."""
    argv = [str(rg), "--no-config", "--color=never", "--no-messages", "--no-heading", "--with-filename"]
    argv += ["--line-number", "--null", "--no-ignore", "--hidden", "--no-follow"]
    argv += [f"--max-filesize={MAX_FILE_BYTES}", f"--max-count={query.max_results + 1}"]
    argv += [f"--max-columns={_RG_LINE_COLUMNS}", "--max-columns-preview"]
    argv += ["--case-sensitive" if query.case_sensitive else "--ignore-case"]
    argv += ["--fixed-strings"] if query.literal else []
    if query.glob and query.glob.startswith("*.") and query.glob[2:].isalnum():
        argv += ["--glob", query.glob]  # other globs are matched in `RgOutput`
    for name in sorted(IGNORED):
        argv += ["--glob", f"!{name}"]
    return [*argv, f"--regexp={query.pattern}", "."]


class RgOutput:
    """Parses ripgrep's output as it arrives and stops ripgrep once there are enough matches."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._filter: PathFilter | None = path_filter(query.glob) if query.glob else None
        self._rest = b""
        self._last = ("", True)
        self.rows: list[tuple[str, int, str]] = []

    @property
    def is_too_much(self) -> bool:
        return len(self.rows) > self._query.max_results

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            path, nul, rest = line.partition(b"\0")
            number, colon, text = rest.partition(b":")
            if not nul or not colon or not number.isdigit():
                continue  # a notice, such as for a binary file
            name = os.fsdecode(path).removeprefix("./")
            if self._filter is not None and name != self._last[0]:  # the lines of a file are consecutive
                self._last = (name, self._filter(name))
            if self._last[1]:
                excerpt = summary(text.decode("utf-8", "replace").rstrip("\r"), 0)
                self.rows.append((name, int(number), excerpt))

    def text(self) -> str:
        """Return an empty text: ripgrep's messages are not shown."""
        return ""

    def is_complete(self, exit_code: int) -> bool:
        """Return whether ripgrep accepted the pattern; Python-only patterns are left to the Python search."""
        return exit_code in _RG_EXIT_CODES or self.is_too_much

    def matches(self, files: ThreadFiles, root: ResolvedPath) -> tuple[list[Match], bool]:
        """Return the matches in files that the file tools would read, and whether there are more."""
        readable = {name: _is_regular(files, root, name) for name in {row[0] for row in self.rows}}
        rows = sorted(row for row in self.rows if readable[row[0]])
        limit = self._query.max_results
        found = [Match(shown(f"{root.virtual}/{name}"), line, text) for name, line, text in rows[:limit]]
        return found, len(rows) > limit or self.is_too_much


def _is_regular(files: ThreadFiles, root: ResolvedPath, name: str) -> bool:
    try:
        with files.open_folder(root) as folder:
            assert isinstance(folder, int)
            fd = open_beneath(folder, name.split("/"), os.O_RDONLY | os.O_NOFOLLOW)
    except (OSError, SandboxError):
        return False
    try:
        about = os.fstat(fd)
        return stat.S_ISREG(about.st_mode) and about.st_nlink == 1
    finally:
        os.close(fd)
