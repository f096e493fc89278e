"""The life of a run can be read in one sitting: the page that walks through it stays short and true."""

import re
from pathlib import Path

import deerflow

PACKAGE = Path(deerflow.__file__).parent
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
MAX_FILES = 25
MAX_LINES = 5000
_FILE = re.compile(r"`([\w/]+\.py)`")
_STEP = re.compile(r"^\| (\d+) \| `([\w/]+\.py)` \|", re.MULTILINE)


def steps(page: str) -> list[str]:
    """Return the files of the walk, in their order."""
    _, _, section = page.partition("## The life of a run")
    found = _STEP.findall(section.partition("\n## ")[0])
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [file for _, file in found]


def test_every_file_that_the_page_names_exists() -> None:
    named = set(_FILE.findall(PAGE.read_text()))

    missing = [name for name in named if not any((base / name).is_file() for base in (PACKAGE, ROOT))]

    assert len(named) > MAX_FILES
    assert missing == []


def test_the_walk_from_the_request_to_the_stream_stays_short() -> None:
    files = steps(PAGE.read_text())

    assert (files[0], files[-1]) == ("gateway/routers/runs.py", "gateway/sse.py")
    assert len(files) == len(set(files)) <= MAX_FILES
    assert sum(len((PACKAGE / file).read_text().splitlines()) for file in files) <= MAX_LINES
