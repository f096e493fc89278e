"""The script of the skill `web-research` on a list of links as people collect them."""

import json
import os
import subprocess
import sys
from pathlib import Path

SKILL = Path(__file__).parents[2] / "skills" / "public" / "web-research"


def run(folder: Path, *arguments: object, code: int = 0, text: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, str(SKILL / "scripts" / "links.py"), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


def test_doubles_go_and_good_pages_come_first(tmp_path: Path) -> None:
    lines = run(tmp_path, SKILL / "evals" / "files" / "links.txt").splitlines()

    assert lines[0] == "7 links, 6 different, 6 publishers. Open in this order:"
    assert lines[1] == "1. https://economy.gov.uk/decisions/chip-plant.pdf  Decision notice  (official)"
    assert lines[2] == "2. https://doi.org/10.1000/xyz123  Subsidies and fabs  (academic)"
    assert lines[3].startswith("3. https://example-news.com/2026/02/chip-plant  New chip plant")
    assert "reddit.com" in lines[4]
    assert "probably a repost" in lines[5]
    assert "(publisher; shortener: the target is unknown)" in lines[6]


def test_each_publisher_comes_once_before_any_comes_twice(tmp_path: Path) -> None:
    text = "https://a.example.co.uk/1\nhttps://b.example.co.uk/2\nhttps://other.org/x?id=5&gclid=9#top\n"
    found = json.loads(run(tmp_path, "-", "--format", "json", text=text))

    assert [each["publisher"] for each in found] == ["example.co.uk", "other.org", "example.co.uk"]
    assert found[1]["url"] == "https://other.org/x?id=5"


def test_login_pages_and_documentation_are_recognised(tmp_path: Path) -> None:
    text = "https://site.org/login/next\nhttps://docs.site.io/start Guide\n"
    found = json.loads(run(tmp_path, "-", "--format", "json", text=text))

    assert found[0]["kind"] == "documentation"
    assert found[1]["flags"] == ["probably needs a login"]


def test_lines_that_are_no_links_are_refused(tmp_path: Path) -> None:
    assert "-:2: 'example.org' is not a URL" in run(
        tmp_path, "-", code=2, text="https://a.org\nexample.org\n"
    )
    assert "is not a URL" in run(tmp_path, "-", code=2, text="https://a.org:port/\n")
    assert "cannot be read" in run(tmp_path, "none.txt", code=2)
