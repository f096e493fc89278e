"""The scripts of the skill `skill-creator`: a skill from its scaffold to its package, and its evaluation."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PUBLIC = Path(__file__).parents[2] / "skills" / "public"
SCRIPTS = PUBLIC / "skill-creator" / "scripts"
MARK = "FILL IN:"


def run(folder: Path, script: str, *arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *map(str, arguments)],
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


def finished_skill(folder: Path) -> Path:
    """Return a scaffold whose open places were completed."""
    description = "Count tickets per owner: also open ones. Use for ticket reports, 工单统计."
    run(
        folder, "scaffold.py", "ticket-count", "--out", "skills", "--description", description,
        "--with-script", "--with-reference",
    )  # fmt: skip
    skill = folder / "skills" / "ticket-count"
    for file in skill.rglob("*.*"):
        text = file.read_text()
        for number in range(text.count(MARK)):
            text = text.replace(MARK, f"Done {number}", 1)
        file.write_text(text)
    return skill


def test_a_scaffold_is_incomplete_until_it_is_filled_in(tmp_path: Path) -> None:
    run(tmp_path, "scaffold.py", "ticket-count", "--out", "skills", "--with-script")
    said = run(tmp_path, "validate.py", "skills/ticket-count", code=1)
    assert "SKILL.md:3 still says FILL IN" in said
    assert "evals/evals.json:6 still says FILL IN" in said
    assert "exists already" in run(tmp_path, "scaffold.py", "ticket-count", "--out", "skills", code=2)
    assert "lower-case" in run(tmp_path, "scaffold.py", "Ticket_Count", "--out", "skills", code=2)


def test_a_finished_skill_is_valid_and_its_script_runs(tmp_path: Path) -> None:
    skill = finished_skill(tmp_path)
    assert "ticket-count: 0 errors, 0 warnings" in run(tmp_path, "validate.py", skill)
    script = skill / "scripts" / "ticket_count.py"
    done = subprocess.run(
        [sys.executable, str(script), str(skill / "SKILL.md")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["lines"] > 20


def test_the_package_is_an_archive_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    skill = finished_skill(tmp_path)
    (skill / "scripts" / "__pycache__").mkdir()
    (skill / "scripts" / "__pycache__" / "x.pyc").write_bytes(b"x")
    first = run(tmp_path, "package.py", skill, "--out", "out")
    assert first == run(tmp_path, "package.py", skill, "--out", "out")
    names = zipfile.ZipFile(tmp_path / "out" / "ticket-count.skill").namelist()
    assert names == [
        "ticket-count/SKILL.md",
        "ticket-count/evals/evals.json",
        "ticket-count/references/details.md",
        "ticket-count/scripts/ticket_count.py",
    ]
    (skill / "SKILL.md").write_text("no front matter")
    assert "nothing was packed" in run(tmp_path, "package.py", skill, "--out", "out", code=1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: ticket-count", "name: other", "differs from the folder's name"),
        ("name: ticket-count", "name: Ticket-Count", "use lower-case letters"),
        ("license: MIT", "licence: MIT", "front matter key 'licence': unknown"),
        ("license: MIT", "license: MIT\nlicense: MIT", "occurs twice"),
        ("license: MIT", "license: see: the file", "must be quoted"),
        ("license: MIT", "just words", "'just words' is not 'key: value'"),
        ("---\n\n#", "\n\n#", "no closing line"),
        ("references/details.md", "references/missing.md", "references/missing.md, which does not exist"),
    ],
)
def test_faults_of_the_text_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    skill = finished_skill(tmp_path)
    file = skill / "SKILL.md"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert message in run(tmp_path, "validate.py", skill, code=1)


def test_faults_of_files_and_evals_are_named(tmp_path: Path) -> None:
    skill = finished_skill(tmp_path)
    (skill / "scripts" / "broken.py").write_text("def f(:\n")
    (skill / "link.txt").symlink_to("/etc/hostname")
    evals = json.loads((skill / "evals" / "evals.json").read_text())
    evals["evals"][0] = {"id": "difficult", "prompt": "p", "expected_output": "e", "files": ["gone.csv"]}
    evals["triggers"]["should"] = evals["triggers"]["should_not"][:1]
    (skill / "evals" / "evals.json").write_text(json.dumps(evals))
    found = json.loads(run(tmp_path, "validate.py", skill, "--format", "json", code=1))
    said = "\n".join(each["text"] for each in found["findings"])

    assert "scripts/broken.py:1 is not valid Python" in said
    assert "scripts/broken.py is not named in SKILL.md" in said
    assert "link.txt is a symbolic link" in said
    assert "case 'difficult' has no 'assertions'" in said
    assert "names gone.csv" in said
    assert "is in should and in should_not" in said
    assert "is not a folder" in run(tmp_path, "validate.py", "nowhere", code=2)


def grade(folder: Path, case: str, side: str, passed: list[bool], evidence: str = "seen") -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    texts = next(each["assertions"] for each in manifest["cases"] if each["id"] == case)
    entries = [
        {"text": text, "passed": is_passed, "evidence": evidence}
        for text, is_passed in zip(texts, passed, strict=True)
    ]
    (folder / case / side / "grading.json").write_text(json.dumps({"assertions": entries}))


def test_the_evaluation_keeps_only_what_is_nowhere_worse(tmp_path: Path) -> None:
    skill = PUBLIC / "recursive-summarizer"
    listed = run(tmp_path, "evaluate.py", "prepare", skill, "--out", "round").splitlines()
    assert len(listed) == 6
    with_skill = (tmp_path / "round" / "chat-export" / "with_skill" / "prompt.md").read_text()
    without = (tmp_path / "round" / "chat-export" / "without_skill" / "prompt.md").read_text()
    assert f"read {skill}/SKILL.md first" in with_skill
    assert "Use no skill" in without
    assert (tmp_path / "round" / "chat-export" / "without_skill" / "inputs" / "release-channel.md").is_file()
    assert "verdict: missing" in run(tmp_path, "evaluate.py", "report", "round", code=1)

    for case, count in (("chat-export", 6), ("short-text", 3), ("question-focused", 3)):
        for side in ("with_skill", "without_skill"):
            grade(tmp_path / "round", case, side, [True] * count)
    same = run(tmp_path, "evaluate.py", "report", "round", code=1)
    assert "verdict: no difference" in same
    assert "always passes: short-text: The answer has exactly three sentences" in same

    grade(tmp_path / "round", "chat-export", "without_skill", [True, False, False, True, True, False])
    better = run(tmp_path, "evaluate.py", "report", "round")
    assert "| chat-export | 6/6 | 3/6 | 3 | 0 |" in better
    assert "verdict: better" in better

    grade(tmp_path / "round", "short-text", "with_skill", [False, True, True])
    worse = run(tmp_path, "evaluate.py", "report", "round", code=1)
    assert "worse in short-text" in worse
    assert "verdict: worse" in worse

    grade(tmp_path / "round", "short-text", "with_skill", [True] * 3, evidence="")
    assert "passed without evidence" in run(tmp_path, "evaluate.py", "report", "round", code=2)
    assert "not empty" in run(tmp_path, "evaluate.py", "prepare", skill, "--out", "round", code=2)


def test_an_old_version_can_be_the_baseline(tmp_path: Path) -> None:
    skill = finished_skill(tmp_path)
    old = PUBLIC / "deep-research"
    run(tmp_path, "evaluate.py", "prepare", skill, "--out", "round", "--baseline", old)
    prompt = (tmp_path / "round" / "ordinary" / "without_skill" / "prompt.md").read_text()
    assert f"read {old}/SKILL.md first" in prompt


def test_triggers_are_asked_without_the_answers_and_scored(tmp_path: Path) -> None:
    skill = PUBLIC / "skill-creator"
    text = run(tmp_path, "triggers.py", "questions", skill, "--catalogue", PUBLIC)
    assert "- deep-research: Researches a question" in text
    queries = dict(line.split(". ", 1) for line in text.split("Queries:\n")[1].splitlines())
    triggers = json.loads((skill / "evals" / "evals.json").read_text())["triggers"]
    assert len(queries) == 20
    answers = {
        number: "skill-creator" if query in triggers["should"] else "none"
        for number, query in queries.items()
    }
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    said = run(tmp_path, "triggers.py", "score", skill, "answers.json")
    assert said == "should trigger: 10/10\nnear misses left alone: 10/10\n"

    (tmp_path / "answers.json").write_text(json.dumps(dict.fromkeys(answers, "skill-creator")))
    said = run(tmp_path, "triggers.py", "score", skill, "answers.json", code=1)
    assert "near misses left alone: 0/10" in said
    assert said.count("false alarm:") == 10
    (tmp_path / "answers.json").write_text("{}")
    assert "no answer for 1, 2" in run(tmp_path, "triggers.py", "score", skill, "answers.json", code=2)


def test_the_front_matter_reader_is_the_same_in_every_skill() -> None:
    copies = {file.read_bytes() for file in PUBLIC.glob("*/scripts/_front_matter.py")}
    assert len(copies) == 1
