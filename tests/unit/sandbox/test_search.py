"""Searching: our own search, ripgrep's, and that both say the same."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.loop_watch import LoopWatch

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxError
from deerflow.sandbox import Sandbox, isolated, thread_paths
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.grep import Query, RgOutput, find_rg, grep, rg_argv
from deerflow.sandbox.isolated import IsolatedSandboxProvider
from deerflow.sandbox.local import LocalSandbox
from deerflow.sandbox.searching import LineSearch, glob_cost, path_filter

WORKSPACE = "/mnt/user-data/workspace"


@pytest.fixture
def files(tmp_path: Path) -> ThreadFiles:
    folders = ThreadFolders("t1", tmp_path)
    folders.create()
    return ThreadFiles(thread_paths(folders))


def write(files: ThreadFiles, path: str, data: bytes) -> None:
    files.replace(files.table.resolve_for_writing(path), data)


def query(pattern: str, *, glob: str | None = None, literal: bool = False, limit: int = 100) -> Query:
    return Query(pattern, glob, literal, False, limit)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("src/**/*.py", "other/src/a.py", False),
        ("**/test_*.py", "test_a.py", True),
        ("**", "any/thing", True),
        ("**/*", "a", True),
        ("*.{ts,tsx}", "web/a.tsx", True),
        ("*.{ts,tsx}", "web/a.tsz", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a?c", "abc", True),
        ("docs/**/", "docs/x", True),
    ],
)
def test_globs_mean_what_people_expect(pattern: str, path: str, fits: bool) -> None:
    assert path_filter(pattern)(path) is fits


def test_a_hostile_glob_does_not_take_long() -> None:
    started = time.process_time()  # not what others on this machine take

    path_filter("/".join(["**"] * 40) + "/" + "*a" * 100 + "b")("/".join(["a" * 60] * 30))
    path_filter("{a,b}" * 30)("x")

    assert time.process_time() - started < 5


def test_long_lines_are_shown_around_the_match() -> None:
    search = LineSearch("needle", literal=False, case_sensitive=True)

    [(number, text)] = search.lines(b"x" * 5000 + b"needle" + b"y" * 5000)

    assert number == 1
    assert "needle" in text
    assert len(text) < 210


@pytest.mark.parametrize(
    "pattern", [r"^beta$", r"\bbeta\b", r"be.a", r"(?i)BETA", r"\Abeta\Z", r"(?<!al)beta"]
)
def test_anchors_are_about_lines(pattern: str) -> None:
    search = LineSearch(pattern, literal=False, case_sensitive=True)

    assert [number for number, _ in search.lines(b"alpha\nbeta\ngamma\n")] == [2]


def test_words_of_other_languages_are_found() -> None:
    search = LineSearch("ÜBER", literal=True, case_sensitive=False)

    assert [text for _, text in search.lines("a\nüber\n".encode())] == ["über"]


async def test_binary_huge_and_ignored_files_are_left_out(files: ThreadFiles, tmp_path: Path) -> None:
    workspace = tmp_path / "user-data" / "workspace"
    (workspace / "binary").write_bytes(b"needle\0")
    (workspace / "huge.txt").write_text("needle\n" + "x" * 1_100_000)
    (workspace / "node_modules").mkdir()
    (workspace / "node_modules" / "a.js").write_text("needle")
    (workspace / "good.txt").write_text("needle")

    matches, _ = await grep(files, WORKSPACE, query("needle"))

    assert [match.path for match in matches] == [f"{WORKSPACE}/good.txt"]
    named, _ = await grep(files, f"{WORKSPACE}/node_modules", query("needle"))
    assert len(named) == 1


async def test_one_file_can_be_searched(files: ThreadFiles) -> None:
    write(files, "a.txt", b"one\ntwo\n")

    matches, _ = await grep(files, f"{WORKSPACE}/a.txt", query("two"))

    assert [(match.path, match.line) for match in matches] == [(f"{WORKSPACE}/a.txt", 2)]


async def test_all_folders_can_be_searched_at_once(files: ThreadFiles) -> None:
    write(files, "a.txt", b"needle")
    write(files, "/mnt/user-data/outputs/b.txt", b"needle")

    matches, _ = await grep(files, "/mnt/user-data", query("needle"))

    assert {match.path for match in matches} == {f"{WORKSPACE}/a.txt", "/mnt/user-data/outputs/b.txt"}


async def test_a_missing_folder_is_an_error(files: ThreadFiles) -> None:
    with pytest.raises(SandboxError, match="nowhere"):
        await grep(files, f"{WORKSPACE}/nowhere/below", query("x"))


async def test_a_search_out_of_time_keeps_what_it_found_or_says_so(files: ThreadFiles) -> None:
    write(files, "a.txt", b"a" * 4000)

    with pytest.raises(SandboxError, match="simpler pattern"):
        await grep(files, WORKSPACE, query(r"(a+)+(a+)+(a+)+b"), seconds=0.1)


async def test_the_server_goes_on_while_a_pattern_explodes(files: ThreadFiles) -> None:
    write(files, "a.txt", b"a" * 4000)
    searching = asyncio.create_task(grep(files, WORKSPACE, query(r"(a+)+(a+)+(a+)+b")))

    for _ in range(20):
        await asyncio.sleep(0.01)
    searching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await searching


@pytest.mark.parametrize(
    ("pattern", "glob", "said"),
    [
        ("(", None, "not a valid regular expression"),
        ("(?i)" + "[\u0100-\U0010fffe]" * 790, None, "did not finish"),  # compiling it takes seconds
        ("x", "**/a/" * 190 + "b", "too many parts"),
        ("x", "{a,b}" * 40 + "/c/d/e/f/g", "too many parts"),
    ],
)
async def test_a_hostile_pattern_or_glob_is_refused_without_holding_up_others(
    files: ThreadFiles, pattern: str, glob: str | None, said: str
) -> None:
    write(files, "a.txt", b"a" * 100)

    async with LoopWatch():
        with pytest.raises(SandboxError, match=said):
            await grep(files, WORKSPACE, query(pattern, glob=glob), seconds=0.1)
        if glob:
            with pytest.raises(SandboxError, match=said):
                await LocalSandbox(files, SandboxSettings()).glob(WORKSPACE, glob)


def test_repeated_stars_cost_nothing_and_only_simple_globs_are_judged_on_the_loop() -> None:
    assert glob_cost("**/" * 330 + "*.py") == 2
    assert query("x", glob="src/**/*.{py,md}").suits_ripgrep
    assert not query("x", glob="/".join(["**/a"] * 10)).suits_ripgrep


def test_what_ripgrep_prints_is_only_data() -> None:
    output = RgOutput(query("x", limit=2))

    output.feed(b"./a.txt\x0012:one\nBinary file matches\n./b\nname.txt\x007:t")
    output.feed(b"wo: 3\nodd\0x:y\n\0\0\n")

    assert output.rows == [("a.txt", 12, "one"), ("name.txt", 7, "two: 3")]


def test_patterns_cannot_become_options_of_ripgrep() -> None:
    argv = rg_argv(Path("/usr/bin/rg"), query("--pre=evil", glob="--pre=evil"))

    assert argv[-2:] == ["--regexp=--pre=evil", "."]
    assert "--pre=evil" not in argv


class TestRipgrep:
    """The same questions to both searches."""

    @pytest.fixture
    async def sandbox(self, reachable: Path) -> AsyncIterator[Sandbox]:
        if find_rg() is None:
            pytest.skip("ripgrep (rg) is not installed on this system")
        provider = IsolatedSandboxProvider(SandboxSettings())
        async with provider.acquire(ThreadFolders("t1", reachable / "users" / "u" / "threads" / "t1")) as one:
            yield one
        await provider.aclose()

    @pytest.mark.parametrize(
        ("pattern", "glob", "literal"),
        [
            ("needle", None, False),
            (r"need\w+ \d{2}", None, False),
            ("a+b", None, True),
            ("needle", "*.txt", False),
            ("needle", "src/**/*.txt", False),
            (r"(?<=nee)dle", None, False),
            ("nothing here", None, False),
        ],
    )
    async def test_ripgrep_and_our_own_search_agree(
        self, sandbox: Sandbox, pattern: str, glob: str | None, literal: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, name in enumerate(
            ("a.txt", "src/b.txt", "src/deep/c.md", "-d.txt", ".hidden/e.txt", "build/f.txt")
        ):
            await sandbox.write_file(name, f"first\nneedle {number + 10}\na+b\nNEEDLE last\r\n")
        await sandbox.update_file("binary", b"needle\0needle")

        theirs = await sandbox.grep(WORKSPACE, pattern, glob=glob, literal=literal)
        monkeypatch.setattr(isolated, "find_rg", lambda: None)
        ours = await sandbox.grep(WORKSPACE, pattern, glob=glob, literal=literal)

        assert sorted(map(str, theirs[0])) == sorted(map(str, ours[0]))
        assert theirs[1] == ours[1]

    async def test_ripgrep_stops_at_the_limit(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("a.txt", "needle\n" * 5000)

        matches, more = await sandbox.grep(WORKSPACE, "needle", max_results=7)

        assert (len(matches), more) == (7, True)
