"""The scripts of `code-documentation`: what a project has to document, and docs that disagree with it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

SKILL = "code-documentation"


@pytest.fixture
def greeter(tmp_path: Path, public_skills: Path) -> Path:
    return Path(shutil.copytree(public_skills / SKILL / "evals/files/greeter", tmp_path / "greeter"))


def test_the_inventory_says_what_the_code_says(greeter: Path, run_script: Any) -> None:
    (greeter / "Makefile").write_text("test: greeter.py\n\tpytest\nX := 1\n")
    (greeter / "pyproject.toml").write_text('[project.scripts]\ngreet = "greeter:main"\n')
    (greeter / "package.json").write_text('{"scripts": {"build": "vite build"}}')
    (greeter / "api.ts").write_text(
        "/** Says hello. */\nexport function hello() {}\nexport const n = process.env.PAGE_SIZE\n"
    )
    (greeter / "web.py").write_text('@app.get("/hello")\ndef hello():\n    """Say hello."""\n')
    (greeter / "node_modules").mkdir()
    (greeter / "node_modules/x.js").write_text("export const secret = 1\n")

    found = json.loads(run_script(SKILL, "inventory.py", greeter, "--json"))

    assert found["languages"] == {"Python": 31, "TypeScript": 3}
    assert found["commands"] == [
        "greet (console script: greeter:main)",
        "npm run build (vite build)",
        "make test",
        "python greeter.py",
    ]
    assert found["settings"] == {"PAGE_SIZE": "api.ts:3", "GREETER_LANGUAGE": "greeter.py:24"}
    assert found["routes"] == ["GET /hello (web.py)"]
    names = {one["name"]: one["documented"] for one in found["public"]}
    assert names == {"hello": True, "n": False, "Greeter": True, "Greeter.greet": False, "main": False}
    assert run_script(SKILL, "inventory.py", greeter, "--undocumented").splitlines() == [
        "api.ts:3 n",
        "greeter.py:13 Greeter.greet",
        "greeter.py:19 main",
    ]
    assert "`greet(self, name: str, *, loud: bool=False) -> str` (no documentation)" in run_script(
        SKILL, "inventory.py", greeter
    )


def test_docs_that_disagree_with_the_code_are_found(greeter: Path, run_script: Any) -> None:
    report = json.loads(run_script(SKILL, "check_docs.py", greeter / "README.md", "--project", greeter))

    assert {(one["line"], one["rule"], one["problem"]) for one in report["findings"]} == {
        (3, "link", "docs/guide.md leads to no file"),
        (7, "option", "--shout appears nowhere in the code"),
        (7, "setting", "GREETER_LANG appears nowhere in the code"),
        (7, "path", "`src/greeter.py` does not exist in the project"),
        (7, "command", "make demo: the Makefile has no such target"),
        (11, "code", "the Python block does not parse: '(' was never closed"),
    }


def test_correct_docs_pass_and_anchors_are_followed(greeter: Path, run_script: Any) -> None:
    (greeter / "docs").mkdir()
    (greeter / "docs/guide.md").write_text("# The guide\n\n## First `steps`\n\n[back](../README.md#usage)\n")
    good = (
        "# Greeter\n\n[start](docs/guide.md#first-steps) [web](https://example.org/x)\n\n## Usage\n\n"
        "`python greeter.py Ann --loud`, with GREETER_LANGUAGE, in `greeter.py`.\n\n"
        '```json\n{"a": 1}\n```\n'
    )
    (greeter / "README.md").write_text(good)
    clean = json.loads(run_script(SKILL, "check_docs.py", greeter, "--project", greeter))
    assert (clean["pages"], clean["findings"]) == (2, [])

    (greeter / "README.md").write_text(
        good.replace("#first-steps", "#last-steps").replace('"a": 1', '"a": 1,') + "TODO\n"
    )
    broken = json.loads(run_script(SKILL, "check_docs.py", greeter, "--project", greeter))
    assert [one["rule"] for one in broken["findings"]] == ["anchor", "code", "placeholder"]


def test_wrong_places_are_refused(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "empty").mkdir()

    assert "is not a folder" in run_script(SKILL, "inventory.py", "nowhere", code=2)
    assert "no source files" in run_script(SKILL, "inventory.py", "empty", code=2)
    assert "is not a file or folder" in run_script(SKILL, "check_docs.py", "none.md", code=2)
