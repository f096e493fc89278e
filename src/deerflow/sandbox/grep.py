"""Runs a search in a child process, so that it can be killed whatever its pattern does."""

import asyncio
import json
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deerflow.errors import SandboxError
from deerflow.sandbox import searching
from deerflow.sandbox.base import Match
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.paths import Place, shown
from deerflow.sandbox.searching import MAX_GLOB_COST, Folder, glob_cost

GREP_MAX_RESULTS = 500
GREP_SECONDS = 20.0
_WORKER = Path(searching.__file__)


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
        limit = max(1, min(self.max_results, GREP_MAX_RESULTS))
        return Query(self.pattern, self.glob, self.literal, self.case_sensitive, limit)


async def grep(
    files: ThreadFiles, path: str, query: Query, *, seconds: float = GREP_SECONDS
) -> tuple[list[Match], bool]:
    """Return the matching lines below `path`, and whether the results were truncated."""
    query = query.checked()
    places = files.table.places_below(path)
    if len(places) == 1 and await asyncio.to_thread(_is_file, files, places[0]):
        return await _grep_one(files, places[0], query, seconds)
    with ExitStack() as stack:
        found = [place for place in places if place.parts or place.mapping.host.is_dir()]
        folders = [stack.enter_context(files.open_folder(place)) for place in found]
        request = {**asdict(query), "folders": folders, "seconds": seconds}
        rows, more = await _ask(request, folders, seconds)
    return [Match(shown(f"{found[i].virtual}/{name}"), line, text) for i, name, line, text in rows], more


async def _grep_one(
    files: ThreadFiles, place: Place, query: Query, seconds: float
) -> tuple[list[Match], bool]:
    """Search a single file, named relative to its open parent folder."""
    name = place.parts[-1]
    parent = Place(place.mapping, place.parts[:-1])
    with files.open_folder(parent) as folder:
        request = {**asdict(query), "folders": [folder], "file": name, "seconds": seconds}
        rows, more = await _ask(request, [folder], seconds)
    return [Match(shown(place.virtual), line, text) for _, _, line, text in rows], more


async def _ask(request: dict[str, Any], folders: list[Folder], seconds: float) -> tuple[list[Any], bool]:
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(_WORKER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=[folder for folder in folders if isinstance(folder, int)],
        env={},
        limit=1 << 22,
    )
    answer: list[bytes] = []
    try:
        async with asyncio.timeout(seconds + 1):
            await _converse(worker, request, answer)
    except TimeoutError:
        pass  # return the matches found so far
    finally:
        if worker.returncode is None:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()
    return _parsed(answer, seconds)


async def _converse(worker: asyncio.subprocess.Process, request: dict[str, Any], answer: list[bytes]) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(request).encode())
    worker.stdin.close()
    while line := await worker.stdout.readline():
        answer.append(line)
    await worker.wait()


def _parsed(answer: list[bytes], seconds: float) -> tuple[list[Any], bool]:
    rows = [json.loads(line) for line in answer if line.endswith(b"\n")]
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


def _is_file(files: ThreadFiles, place: Place) -> bool:
    if not place.parts:
        return False
    try:
        with files.open_folder(place):
            return False
    except SandboxError:
        return True
