"""The scripts of the skill `deep-research` on real plans, ledgers and reports."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "skills" / "public" / "deep-research" / "scripts"

PLAN = {
    "question": "Should we move from VPN to zero trust?",
    "angles": [
        {"id": "cost", "question": "What does it cost?", "min_sources": 2},
        {"id": "critics", "question": "What went wrong elsewhere?", "min_sources": 1},
    ],
}


def run(folder: Path, script: str, *arguments: str, code: int) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


def source(url: str, angle: str = "cost", **more: object) -> dict[str, object]:
    found = {"url": url, "title": "A page", "angle": angle, "type": "news", "date": "2025-03", "opened": True}
    return {**found, "stance": "supports", **more}


def write(folder: Path, *sources: dict[str, object]) -> None:
    (folder / "plan.json").write_text(json.dumps(PLAN))
    (folder / "sources-a.jsonl").write_text("\n\n".join(json.dumps(each) for each in sources))


def test_the_table_names_gaps_and_what_to_do(tmp_path: Path) -> None:
    write(
        tmp_path,
        source("https://www.one.org/a?utm_source=x"),
        source("https://one.org/a/"),  # the same page, so the angle is thin
        source("https://two.org/b", opened=False),
    )
    said = run(tmp_path, "coverage.py", "plan.json", "sources-a.jsonl", "--newest-from", "2026", code=1)

    assert "| cost | 1 / 2 | 1 | news 1 | 2025-03 | 0 | thin, one host, old |" in said
    assert "| critics | 0 / 1 | 0 | - | - | 0 | missing |" in said
    assert "whole question: nothing contradicts" in said


def test_a_covered_plan_exits_with_zero(tmp_path: Path) -> None:
    write(
        tmp_path,
        source("https://one.org/a"),
        source("https://two.org/b", type="primary"),
        source("https://three.org/c", angle="critics", stance="contradicts"),
    )
    said = run(tmp_path, "coverage.py", "plan.json", "sources-a.jsonl", code=0)
    result = json.loads(
        run(tmp_path, "coverage.py", "plan.json", "sources-a.jsonl", "--format", "json", code=0)
    )

    assert "Every angle is covered." in said
    assert result["complete"] is True
    assert result["angles"][0]["types"] == {"news": 1, "primary": 1}


def test_wrong_ledgers_are_refused_with_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, source("https://one.org/a"), source("https://one.org/b", type="rumour"))
    assert "sources-a.jsonl:3: type 'rumour'" in run(
        tmp_path, "coverage.py", "plan.json", "sources-a.jsonl", code=2
    )
    write(tmp_path, source("https://one.org/a", angle="price"))
    assert "the plan has cost, critics" in run(
        tmp_path, "coverage.py", "plan.json", "sources-a.jsonl", code=2
    )
    (tmp_path / "sources-a.jsonl").write_text("{not json\n")
    assert "sources-a.jsonl:1 is not valid JSON" in run(
        tmp_path, "coverage.py", "plan.json", "sources-a.jsonl", code=2
    )
    assert "nowhere.json cannot be read" in run(tmp_path, "coverage.py", "nowhere.json", code=2)


def test_a_sound_report_passes(tmp_path: Path) -> None:
    write(tmp_path, source("https://en.wikipedia.org/wiki/Trust_(law)"), source("https://two.org/b"))
    (tmp_path / "report.md").write_text(
        "# Answer\n\nIt costs 9 USD a month.[citation:Wiki](https://en.wikipedia.org/wiki/Trust_(law)) "
        "This suggests savings of 20 %.\n\n成本为9美元。[citation:B](https://two.org/b)\n\n"
        "```\n[citation:]\n```\n\n## Sources\n"
        "- [Wiki](https://en.wikipedia.org/wiki/Trust_(law)) - law\n- [B](https://two.org/b) - price\n"
    )
    said = run(tmp_path, "check_report.py", "report.md", "--sources", "sources-a.jsonl", "--strict", code=0)
    assert said == "2 citations of 2 pages by 2 publishers\n"


def test_bad_citations_and_bare_numbers_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        source("https://one.org/a", opened=False),
        source("https://two.org/against", stance="contradicts"),
    )
    (tmp_path / "report.md").write_text(
        "# Answer\n\nPrices fell by 30 %.\n\nSee [citation:A](https://one.org/a), "
        "[citation:X](https://x.org/) and [citation:Bare].\n\n## Sources\n- [A](https://one.org/a) - a\n"
    )
    result = json.loads(
        run(
            tmp_path,
            "check_report.py",
            "report.md",
            "--sources",
            "sources-a.jsonl",
            "--format",
            "json",
            code=1,
        )
    )
    errors, warnings = "\n".join(result["errors"]), "\n".join(result["warnings"])

    assert "line 5: https://one.org/a was never opened" in errors
    assert "https://x.org/ is not in the source ledgers" in errors
    assert "'[citation:Bare]' must be [citation:Title](URL)" in errors
    assert "https://x.org/ is cited but not in the source list" in errors
    assert "number without citation: '# Answer" not in warnings
    assert "Prices fell by 30 %." in warnings
    assert "contradicting source is not cited" in warnings


def test_a_report_without_citations_or_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("# Answer\n\nYes.\n")
    said = run(tmp_path, "check_report.py", "report.md", code=1)
    assert "no citation" in said
    assert "no source list" in said
    assert "missing.md cannot be read" in run(tmp_path, "check_report.py", "missing.md", code=2)
