"""Globs and patterns of a search: answered, or refused as what they are."""

import io
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.inputs import texts
from hypothesis import assume, example, given
from hypothesis import strategies as st

from deerflow.sandbox.searching import MAX_GLOB_COST, LineSearch, glob_cost, path_filter, serve

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of odd sets in a pattern

GLOBS = st.one_of(
    texts,
    st.lists(
        st.sampled_from(
            ("**/", "*", "?", "[", "]", "!", "{", ",", "}", "/", "a", ".py", "..", "\\", "^", "-")
        ),
        max_size=30,
    ).map("".join),
)
PATHS = st.lists(st.sampled_from(("a", "b.py", "é", "..", "a b", "[", "\n")), min_size=1, max_size=20).map(
    "/".join
)
PATTERNS = st.one_of(
    texts,
    st.lists(
        st.sampled_from(
            (
                *(
                    "a",
                    "é",
                    ".",
                    "^",
                    "$",
                    "\\w",
                    "\\b",
                    "\\s",
                    "\\S",
                    "[^a]",
                    "[",
                    "]",
                    "(",
                    ")",
                    "(?",
                    "(?i)",
                    "(?=",
                    "|",
                ),
                *(
                    "*",
                    "+",
                    "?",
                    "{2}",
                    "{99999}",
                    "\\u00e9",
                    "\\x61",
                    "\\N{DIGIT ONE}",
                    "\\A",
                    "\\Z",
                    "\\1",
                    "k",
                    "-",
                ),
            )
        ),
        min_size=1,
        max_size=5,
    ).map("".join),
)
SLOW = re.compile(r"[*+?}].*[*+?}].*[*+?}]")
"""Patterns that may take for ever, which is why the search runs in a child process with a deadline."""
LINES = st.lists(
    st.sampled_from(("a", "é", "É", "\u212a", "aé1", "", " ", "a b", "1", "\r", "x" * 300)), max_size=6
)


@given(GLOBS, PATHS)
def test_a_glob_is_cheap_or_refused(glob: str, path: str) -> None:
    started = time.process_time()
    if glob_cost(glob) <= MAX_GLOB_COST:
        path_filter(glob)(path)

    assert time.process_time() - started < 0.5


@example("\\u00e9", False, True, ["é"]).via("refused: the bytes of a file were searched with it first")
@example("^.$", False, True, ["é"]).via("not found: two bytes")
@example("a\\w1", False, True, ["aé1"]).via("not found: no letter among the bytes")
@example("k", False, False, ["\u212a"]).via("not found: the bytes have no such capital")
@example("[^a]++$", False, True, ["b", "a"]).via(
    "a quantifier that gives nothing back runs over the line's end"
)
@given(PATTERNS, st.booleans(), st.booleans(), LINES)
def test_a_search_finds_what_the_pattern_says_of_each_line(
    pattern: str, literal: bool, case_sensitive: bool, lines: list[str]
) -> None:
    assume(literal or not SLOW.search(pattern))
    text = re.escape(pattern) if literal else pattern
    try:
        expected = re.compile(text, re.MULTILINE | (0 if case_sensitive else re.IGNORECASE))
    except (re.error, OverflowError, RecursionError):
        expected = None

    try:
        search = LineSearch(pattern, literal=literal, case_sensitive=case_sensitive)
    except (re.error, OverflowError, RecursionError):
        assert expected is None
        return

    assert expected is not None
    found = [number for number, _ in search.lines("\n".join(lines).encode())]
    assert found == [
        number for number, line in enumerate("\n".join(lines).split("\n"), 1) if expected.search(line)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root: Path = tmp_path_factory.mktemp("searched")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "a.py").write_text("a\né\n")
    (root / "deep" / "er" / "b.txt").write_bytes(b"\xff\x00binary")
    opened = os.open(root, os.O_RDONLY)
    yield opened
    os.close(opened)


@given(PATTERNS, st.none() | GLOBS, st.booleans())
def test_a_request_is_answered_in_json_lines(
    folder: int, pattern: str, glob: str | None, literal: bool
) -> None:
    assume(literal or not SLOW.search(pattern))
    assume(glob is None or glob_cost(glob) <= MAX_GLOB_COST)
    out = io.StringIO()
    request = {"pattern": pattern, "glob": glob, "literal": literal, "case_sensitive": True}

    serve({**request, "folders": [folder], "seconds": 20, "max_results": 5}, out)

    *rows, end = map(json.loads, out.getvalue().splitlines())
    assert all(isinstance(row, list) for row in rows)
    assert set(end) in ({"more"}, {"invalid"})
