#!/usr/bin/env python3
"""Prepare and compare runs of a skill's test prompts with and without the skill.

prepare SKILL --out DIR  make DIR/CASE/{with_skill,without_skill} with prompt.md and the input files
report DIR               compare the gradings (grading.json beside each answer) and give a verdict
Exit code 0: prepared, or better; 1 (report): not better, or something is missing; 2: an input is wrong.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

SIDES = ("with_skill", "without_skill")
PROMPT = """\
{way}

Do the task below as if a user had sent it. Nobody can answer questions: decide what is open and say how.
Input files: {files}
Write every file that you produce to {folder}/outputs/, also where /mnt/user-data/outputs is named.
Write your complete final answer to the user to {folder}/answer.md.
Read nothing else below {root}. Report only: done or not done, and the files you wrote.

Task:
{prompt}
"""
WITH = (
    "Follow the skill in {skill}: read {skill}/SKILL.md first, then the files it names when a step needs "
    "them. Where it names /mnt/skills/public/{name} or /mnt/skills/custom/{name}, use {skill}."
)
WITHOUT = "Use no skill: read nothing below /mnt/skills or in the folder {skill}."


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def read_json(path: Path) -> Any:
    """Return a file's JSON, or fail with the reason."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{path} cannot be read: {error}")


def prepare(options: argparse.Namespace) -> int:
    """Write the folders of all runs."""
    skill = options.skill.resolve()
    evals = read_json(skill / "evals" / "evals.json")
    cases = evals.get("evals") if isinstance(evals, dict) else None
    if not cases:
        fail(f"{skill}/evals/evals.json has no cases; write at least three")
    if options.out.exists() and any(options.out.iterdir()):
        fail(f"{options.out} is not empty; use a new folder for each round")
    baseline = options.baseline.resolve() if options.baseline else None
    if baseline and not (baseline / "SKILL.md").is_file():
        fail(f"{baseline} has no SKILL.md")
    root = options.out.resolve()
    for case in cases:
        name = str(case.get("id", ""))
        if not re.fullmatch(r"[\w-]{1,64}", name) or not case.get("prompt") or not case.get("assertions"):
            fail(f"case {name!r} needs an id of letters, digits and hyphens, a prompt and assertions")
        for side in SIDES:
            _write_run(root / name / side, case, skill, baseline if side == "without_skill" else skill, root)
    manifest = {
        "skill": str(skill),
        "baseline": str(baseline) if baseline else None,
        "cases": [{"id": str(case["id"]), "assertions": case["assertions"]} for case in cases],
    }
    (root / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=2), encoding="utf-8")
    for case in cases:
        for side in SIDES:
            print(root / str(case["id"]) / side / "prompt.md")
    return 0


def _write_run(folder: Path, case: dict[str, Any], skill: Path, used: Path | None, root: Path) -> None:
    (folder / "outputs").mkdir(parents=True)
    files = []
    for each in case.get("files", []):
        source = skill / "evals" / each
        if not source.is_file():
            fail(f"case '{case['id']}' names {each}, which is not below {skill}/evals")
        target = folder / "inputs" / source.name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)
        files.append(str(target))
    way = WITHOUT.format(skill=skill) if used is None else WITH.format(skill=used, name=skill.name)
    text = PROMPT.format(
        way=way, files=", ".join(files) or "none", folder=folder, root=root, prompt=case["prompt"]
    )
    (folder / "prompt.md").write_text(text, encoding="utf-8")


def graded(folder: Path, wanted: list[str]) -> dict[str, bool] | None:
    """Return assertion → passed of one run; None if it was not graded."""
    file = folder / "grading.json"
    if not file.is_file():
        return None
    data = read_json(file)
    entries = data.get("assertions") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        fail(f"{file} needs the key 'assertions' with a list of text, passed, evidence")
    found = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("passed"), bool):
            fail(f"{file}: each entry needs 'text' and 'passed' (true or false)")
        if entry["passed"] and not str(entry.get("evidence") or "").strip():
            fail(f"{file}: {entry.get('text')!r} passed without evidence; give the fact that shows it")
        found[str(entry.get("text"))] = entry["passed"]
    missing = [text for text in wanted if text not in found]
    if missing:
        fail(f"{file} does not grade {missing[0]!r}; use the assertion's own words")
    return {text: found[text] for text in wanted}


def compare(case: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return the comparison of one case."""
    pair = {side: graded(root / case["id"] / side, case["assertions"]) for side in SIDES}
    with_, without = pair["with_skill"], pair["without_skill"]
    result: dict[str, Any] = {"id": case["id"], "missing": [side for side in SIDES if pair[side] is None]}
    if with_ is None or without is None:
        return result
    return {
        **result,
        "total": len(with_),
        "with": sum(with_.values()),
        "without": sum(without.values()),
        "gained": [text for text in with_ if with_[text] and not without[text]],
        "lost": [text for text in with_ if without[text] and not with_[text]],
        "always": [text for text in with_ if with_[text] and without[text]],
        "never": [text for text in with_ if not with_[text] and not without[text]],
    }


def verdict(cases: list[dict[str, Any]]) -> str:
    """Return better, worse, no difference or missing; better means nowhere worse and somewhere better."""
    if any(case["missing"] for case in cases):
        return "missing"
    if any(case["with"] < case["without"] for case in cases):
        return "worse"
    return "better" if any(case["with"] > case["without"] for case in cases) else "no difference"


def report(options: argparse.Namespace) -> int:
    """Print the comparison and the verdict."""
    manifest = read_json(options.folder / "manifest.json")
    cases = [compare(case, options.folder) for case in manifest["cases"]]
    result = verdict(cases)
    if options.format == "json":
        print(json.dumps({"verdict": result, "cases": cases}, ensure_ascii=False, indent=2))
        return 0 if result == "better" else 1
    other = "old version" if manifest.get("baseline") else "without skill"
    print(f"| Case | With skill | {other.capitalize()} | Gained | Lost |\n|---|---|---|---|---|")
    for case in cases:
        if case["missing"]:
            print(f"| {case['id']} | missing: {', '.join(case['missing'])} | | | |")
        else:
            total, gained, lost = case["total"], len(case["gained"]), len(case["lost"])
            print(
                f"| {case['id']} | {case['with']}/{total} | {case['without']}/{total} | {gained} | {lost} |"
            )
    print()
    labels = {"lost": "lost", "never": "never passes", "always": "always passes"}
    for case in cases:
        for key, label in labels.items():
            for text in case.get(key, []):
                print(f"{label}: {case['id']}: {text}")
    for case in cases:
        if not case["missing"] and case["with"] < case["without"]:
            print(f"worse in {case['id']}")
    print(f"verdict: {result}")
    return 0 if result == "better" else 1


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("prepare", help=prepare.__doc__)
    command.add_argument("skill", type=Path, help="the skill's folder")
    command.add_argument("--out", type=Path, required=True, help="new folder for this round")
    command.add_argument("--baseline", type=Path, help="folder of the old version, instead of no skill")
    command.set_defaults(run=prepare)
    command = commands.add_parser("report", help=report.__doc__)
    command.add_argument("folder", type=Path, help="the --out folder of prepare")
    command.add_argument("--format", choices=("text", "json"), default="text")
    command.set_defaults(run=report)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
