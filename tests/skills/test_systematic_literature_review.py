"""The scripts of the skill `systematic-literature-review`: from exports to flow diagram and pooled effect."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

SKILL = Path(__file__).parents[2] / "skills" / "public" / "systematic-literature-review"
FILES = SKILL / "evals" / "files"


def run(folder: Path, script: str, *arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SKILL / "scripts" / script), *map(str, arguments)],
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


def library(folder: Path) -> list[dict[str, str]]:
    with (folder / "library.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def import_all(folder: Path) -> str:
    files = [FILES / name for name in ("pubmed.nbib", "scopus.ris", "extra.bib")]
    return run(folder, "library.py", "import", *files, "--out", "library.csv")


def decide(folder: Path, name: str, round_: str, entries: list[dict[str, str]], code: int = 0) -> str:
    (folder / name).write_text(json.dumps(entries))
    return run(folder, "library.py", "apply", "library.csv", name, "--round", round_, code=code)


def test_records_of_three_formats_are_read_and_duplicates_marked(tmp_path: Path) -> None:
    said = import_all(tmp_path)
    rows = library(tmp_path)

    assert "7 records, 2 duplicates, 5 to screen" in said
    first = rows[0]
    assert first["title"] == "Effects of night shifts on sleep duration in hospital nurses: a cohort study"
    assert first["authors"] == "Okafor, Ngozi; Lind, Per"
    assert (first["year"], first["doi"]) == ("2021", "10.1000/jos.2021.01")
    assert first["abstract"].endswith("(95% CI 48 to 78).")
    assert [row["duplicate_of"] for row in rows] == ["", "", "", "R0001", "", "R0002", ""]
    assert rows[5]["authors"] == "Haas, Eva; Muller, Jan"
    assert rows[6]["venue"] == "Proceedings of Shift Work"
    assert rows[6]["abstract"].endswith("(95% CI 9 to 33).")
    assert rows[4]["url"] == "https://doi.org/10.1000/ccw.2022.3"


def test_importing_again_keeps_decisions_and_adds_nothing(tmp_path: Path) -> None:
    import_all(tmp_path)
    decide(tmp_path, "d.json", "screen", [{"id": "R0001", "decision": "include"}])
    assert "imported before, skipped" in import_all(tmp_path)
    assert [row["screen"] for row in library(tmp_path)] == ["include", "", "", "", "", "", ""]
    (tmp_path / "more.csv").write_text(
        "Title,Author,Year,DOI\n"
        "Rotating shifts and insomnia in intensive care nurses,Chen L,2022,10.1000/other\n新研究,王伟,2024,\n"
    )
    said = run(tmp_path, "library.py", "import", "more.csv", "--out", "library.csv")
    assert "9 records, 2 duplicates" in said
    assert "possible duplicate: R0008 and R0005" in said


def test_screening_leads_to_counts_that_add_up_and_a_flow_diagram(tmp_path: Path) -> None:
    import_all(tmp_path)
    batch = json.loads(
        run(tmp_path, "library.py", "batch", "library.csv", "--round", "screen", "--size", "3")
    )
    assert [record["id"] for record in batch] == ["R0001", "R0002", "R0003"]
    decide(
        tmp_path,
        "screen.json",
        "screen",
        [
            {"id": "R0001", "decision": "include"},
            {"id": "R0002", "decision": "exclude", "reason": "E1 wrong population"},
            {"id": "R0003", "decision": "exclude", "reason": "E4 wrong outcome"},
            {"id": "R0005", "decision": "include"},
            {"id": "R0007", "decision": "include"},
        ],
    )
    run(tmp_path, "library.py", "status", "library.csv", code=1)  # full texts are undecided
    decide(
        tmp_path,
        "full.json",
        "fulltext",
        [
            {"id": "R0001", "decision": "include"},
            {"id": "R0005", "decision": "exclude", "reason": "E5 wrong design <survey>"},
            {"id": "R0007", "decision": "exclude", "reason": "not retrieved"},
        ],
    )
    numbers = json.loads(run(tmp_path, "library.py", "status", "library.csv", "--flow", "out/flow.svg"))

    assert numbers["identified"] - numbers["duplicates"] == numbers["screened"] == 5
    assert numbers["screened"] - numbers["excluded_at_screening"] == numbers["sought"] == 3
    assert numbers["sought"] - numbers["not_retrieved"] == numbers["assessed"] == 2
    assert numbers["excluded_at_fulltext"] == {"E5 wrong design <survey>": 1}
    assert numbers["included"] == 1
    drawn = [text.text for text in ElementTree.parse(tmp_path / "out" / "flow.svg").iter() if text.text]
    assert "Studies included in review (n = 1)" in drawn
    assert "E5 wrong design <survey> (n = 1)" in drawn

    assert "@article{okafor2021-R0001," in run(
        tmp_path, "library.py", "export", "library.csv", "--format", "bib"
    )
    table = run(tmp_path, "library.py", "export", "library.csv")
    assert "| R0001 | Okafor, Ngozi et al. | 2021 | Effects of night shifts" in table


def test_wrong_decisions_change_nothing(tmp_path: Path) -> None:
    import_all(tmp_path)
    include = {"id": "R0001", "decision": "include"}
    before = (tmp_path / "library.csv").read_bytes()
    for entries, message in (
        ([include, {"id": "R0002", "decision": "exclude"}], "R0002 is excluded without a reason"),
        ([include, {"id": "R0099", "decision": "include"}], "there is no record R0099"),
        ([include, {"id": "R0004", "decision": "include"}], "R0004 is a duplicate"),
        ([include, {"id": "R0002", "decision": "maybe"}], "needs id and decision"),
        ([include, include], "R0001 is decided twice"),
    ):
        assert message in decide(tmp_path, "bad.json", "screen", entries, code=2)
    assert (tmp_path / "library.csv").read_bytes() == before


def test_agreement_of_two_screeners(tmp_path: Path) -> None:
    def write(name: str, included: set[int]) -> None:
        entries = [
            {"id": f"R{number}", "decision": "include" if number in included else "exclude", "reason": "E1"}
            for number in range(10)
        ]
        (tmp_path / name).write_text(json.dumps(entries))

    write("a.json", {0, 1, 2, 3, 4})
    write("b.json", {0, 1, 2, 3, 5})
    said = run(tmp_path, "library.py", "kappa", "a.json", "b.json", code=1)
    assert "10 records, agreement 80%, kappa 0.60" in said
    assert "conflict: R4: include / exclude" in said


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ris").write_text("not a reference file")
    assert "a.ris is not RIS" in run(tmp_path, "library.py", "import", "a.ris", "--out", "l.csv", code=2)
    assert "cannot be read" in run(tmp_path, "library.py", "import", "b.ris", "--out", "l.csv", code=2)
    assert "no file matches *.bib" in run(tmp_path, "library.py", "import", "*.bib", "--out", "l.csv", code=2)
    assert not (tmp_path / "l.csv").exists()
    run(tmp_path, "library.py", "import", FILES / "scopus.ris", "*.bib", "--out", "found.csv")
    (tmp_path / "l.csv").write_text("a,b\n1,2\n")
    assert "lacks the columns" in run(tmp_path, "library.py", "status", "l.csv", code=2)


def test_pooling_the_bcg_trials_gives_their_published_heterogeneity(tmp_path: Path) -> None:
    trials = [
        (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619),
        (33, 5036, 47, 5761), (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892),
        (29, 7470, 45, 7232), (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338),
        (27, 16886, 29, 17825),
    ]  # fmt: skip
    lines = ["study,effect,low,high"]
    for number, (a, b, c, d) in enumerate(trials):
        log = math.log((a / (a + b)) / (c / (c + d)))
        se = math.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
        limits = [math.exp(log + sign * 1.959964 * se) for sign in (-1, 1)]
        lines.append(f"Trial {number},{math.exp(log)},{limits[0]},{limits[1]}")
    (tmp_path / "bcg.csv").write_text("\n".join(lines))
    result = json.loads(
        run(tmp_path, "meta.py", "bcg.csv", "--log", "--format", "json", "--svg", "forest.svg")
    )

    assert (result["q"], result["df"]) == (152.233, 12)  # as R's metafor prints it for these trials
    assert (result["random"]["effect"], result["tau2"], result["i2_percent"]) == (0.4896, 0.30876, 92.1)
    assert (round(result["random"]["low"], 3), round(result["random"]["high"], 3)) == (0.345, 0.695)
    drawn = [text.text for text in ElementTree.parse(tmp_path / "forest.svg").iter() if text.text]
    assert "Random effects" in drawn
    assert "0.49 [0.34, 0.69]" in drawn
    assert "caution" in run(tmp_path, "meta.py", "bcg.csv", "--log")


def test_wrong_effects_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("study,effect,se\nA,1.0,0.1\nB,x,0.1\n")
    assert "e.csv:3: effect 'x' is not a number" in run(tmp_path, "meta.py", "e.csv", code=2)
    (tmp_path / "e.csv").write_text("study,effect,low,high\nA,1.0,1.2,1.4\n")
    assert "must ascend" in run(tmp_path, "meta.py", "e.csv", code=2)
    (tmp_path / "e.csv").write_text("study,effect,se\nA,1.0,0.1\n")
    assert "at least two studies" in run(tmp_path, "meta.py", "e.csv", code=2)
    (tmp_path / "e.csv").write_text("study\nA\n")
    assert "needs the columns" in run(tmp_path, "meta.py", "e.csv", code=2)
