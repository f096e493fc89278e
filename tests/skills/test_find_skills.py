"""The search of the skill `find-skills` over the shipped skills and over folders with broken ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "skills"
SCRIPT = ROOT / "public" / "find-skills" / "scripts" / "search.py"


def search(*arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


@pytest.mark.parametrize(
    ("need", "skill"),
    [
        ("boil a very long transcript down to two pages", "recursive-summarizer"),
        ("这份文件太长了，概括重点", "recursive-summarizer"),
        ("is it dangerous to add this downloaded package", "skill-reviewer"),
        ("这个下载的扩展包安全吗", "skill-reviewer"),
        ("how large is the market for pet food", "consulting-analysis"),
        ("帮我分析竞争对手并制定战略", "consulting-analysis"),
        ("论文筛选去重", "systematic-literature-review"),
        ("pool the odds ratios of several trials", "systematic-literature-review"),
        ("teach the agent our weekly routine permanently", "skill-creator"),
        ("thorough investigation with many sources", "deep-research"),
        ("核实一条网上的新闻", "web-research"),
        ("look up the current price online", "web-research"),
    ],
)
def test_the_right_skill_is_among_the_first_three(need: str, skill: str) -> None:
    found = json.loads(search(need, "--root", ROOT, "--limit", 3, "--format", "json"))
    assert skill in [each["name"] for each in found]


def test_nothing_is_claimed_for_a_foreign_need() -> None:
    assert "nothing fits among" in search("bake a chocolate cake", "--root", ROOT, code=1)


def test_all_skills_are_listed_with_path_and_description() -> None:
    listed = json.loads(search("--list", "--root", ROOT, "--format", "json"))
    names = [each["name"] for each in listed]
    assert names == sorted(path.parent.name for path in ROOT.glob("public/*/SKILL.md"))
    assert all(Path(each["path"]).is_file() and each["description"] for each in listed)


def test_custom_skills_win_and_broken_ones_are_skipped(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)

    write("public/notes/SKILL.md", "---\nname: notes\ndescription: Old way to tidy notes.\n---\n")
    write(
        "custom/team/notes/SKILL.md",
        "---\nname: notes\ndescription: >\n  Tidy notes\n  our way: fast.\n---\n",
    )
    write("custom/team/notes/examples/SKILL.md", "---\nname: nested\ndescription: Tidy notes too.\n---\n")
    write("custom/broken/SKILL.md", "no front matter, tidy notes")
    write("custom/.draft/SKILL.md", "---\nname: draft\ndescription: Tidy notes later.\n---\n")
    found = json.loads(search("tidy my notes", "--root", tmp_path, "--format", "json"))

    assert [(each["name"], each["category"]) for each in found] == [("notes", "custom")]
    assert found[0]["description"] == "Tidy notes our way: fast."


def test_wrong_inputs_are_refused(tmp_path: Path) -> None:
    assert "is not a folder" in search("notes", "--root", tmp_path / "none", code=2)
    assert "say in a few words" in search("the", "--root", ROOT, code=2)
