"""The scripts of `code-review`: diffs of git and of files, hints, and findings that must fit the diff."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

SKILL = "code-review"


@pytest.fixture
def diff(public_skills: Path) -> Path:
    return public_skills / SKILL / "evals/files/voucher.diff"


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_a_patch_is_shown_with_lines_hints_and_notes(diff: Path, run_script: Any) -> None:
    report = json.loads(run_script(SKILL, "changes.py", "--diff", diff, "--json"))

    file = report["files"][0]
    assert (file["path"], file["status"], file["kind"], file["added"], file["removed"]) == (
        "shop/checkout.py", "modified", "source", 17, 1,
    )  # fmt: skip
    assert {(hint["line"], hint["rule"]) for hint in file["hints"]} == {
        (16, "sql-text"),
        (19, "mutable-default"),
        (26, "broad-catch"),
    }
    assert report["notes"] == ["1 source files change, no test is added or extended"]
    assert "    16+     return connection().execute(f" in run_script(SKILL, "changes.py", "--diff", diff)


def test_branches_staged_and_uncommitted_changes_come_from_git(tmp_path: Path, run_script: Any) -> None:
    repo = tmp_path / "project"
    repo.mkdir()
    _git(repo, "init", "-b", "main")
    (repo / "app.py").write_text("a = 1\n")
    (repo / "old name.py").write_text("x = 1\ny = 2\nz = 3\n")
    _git(repo, "add", ".")
    _git(repo, "commit", "-m", "one")
    _git(repo, "checkout", "-b", "feature")
    (repo / "tests").mkdir()
    (repo / "tests/test_app.py").write_text("def test_a():\n    assert True\n")
    _git(repo, "mv", "old name.py", "new name.py")
    _git(repo, "add", ".")
    _git(repo, "commit", "-m", "two")
    (repo / "app.py").write_text("a = 1\npassword = 'hunter2hunter2'\n")

    branch = json.loads(run_script(SKILL, "changes.py", "--repo", repo, "--base", "main", "--json"))
    uncommitted = json.loads(run_script(SKILL, "changes.py", "--repo", repo, "--json"))

    assert [(file["path"], file["status"], file["kind"]) for file in branch["files"]] == [
        ("new name.py", "renamed", "source"),
        ("tests/test_app.py", "added", "test"),
    ]
    assert [hint["rule"] for hint in uncommitted["files"][0]["hints"]] == ["secret"]
    assert "there are no changes" in run_script(SKILL, "changes.py", "--repo", repo, "--staged", code=2)
    assert "git diff failed" in run_script(SKILL, "changes.py", "--repo", repo, "--base", "nowhere", code=2)
    assert "is no revision" in run_script(SKILL, "changes.py", "--repo", repo, "--base=--output=x", code=2)


def test_findings_that_fit_become_a_review(diff: Path, tmp_path: Path, run_script: Any) -> None:
    finding = {
        "file": "shop/checkout.py", "line": 16, "severity": "blocker", "title": "SQL injection",
        "code": "SELECT * FROM vouchers", "problem": "' OR 1=1 -- finds any.", "suggestion": "Use ?.",
    }  # fmt: skip
    removed = finding | {
        "line": 17,
        "code": "assert amount > 0",
        "severity": "major",
        "title": "Check removed",
    }
    review = {"summary": "Adds vouchers.", "findings": [removed, finding], "praise": ["Small."]}
    (tmp_path / "findings.json").write_text(json.dumps(review))

    made = json.loads(
        run_script(SKILL, "write_review.py", "findings.json", "--diff", diff, "--out", "review.md")
    )

    assert made["verdict"] == "request changes"
    text = (tmp_path / "review.md").read_text()
    assert text.startswith("# Code review\n\n**Verdict: request changes** (1 blocker, 1 major)")
    assert text.index("blocker: SQL injection") < text.index("major: Check removed")
    assert "`shop/checkout.py:16`" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file": "other.py"}, "other.py is not in the diff; the files are shop/checkout.py"),
        ({"line": 999}, "line 999 of shop/checkout.py is not in the diff"),
        ({"code": "return 5"}, "'return 5' is not at line 16"),
        ({"severity": "bad"}, "severity 'bad'"),
        ({"title": ""}, "needs title"),
    ],
)
def test_a_finding_that_does_not_fit_is_refused(
    change: dict[str, Any], words: str, diff: Path, tmp_path: Path, run_script: Any
) -> None:
    finding = {
        "file": "shop/checkout.py",
        "line": 16,
        "severity": "minor",
        "title": "t",
        "problem": "p",
    } | change
    (tmp_path / "findings.json").write_text(json.dumps({"summary": "s", "findings": [finding]}))

    assert words in run_script(
        SKILL, "write_review.py", "findings.json", "--diff", diff, "--out", "r.md", code=2
    )
    assert not (tmp_path / "r.md").exists()
