#!/usr/bin/env python3
"""Test whether a skill's description makes an agent choose it for the right queries.

questions SKILL [--catalogue DIR]  print the skills' descriptions and the queries, in a fixed mixed order
score SKILL ANSWERS                score answers such as {"1": "skill-name", "2": "none"}
Exit code 0: at least --need right on each side; 1: fewer; 2: an input is wrong.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from _front_matter import parse

INTRODUCTION = """\
You choose skills for an agent. For each numbered query choose the one skill whose description fits best, or
"none" if no skill is needed. Judge by the descriptions only. Answer with one JSON object and nothing else:
{"1": "skill-name", "2": "none", ...}
"""


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def read_text(path: Path) -> str:
    """Return a file's text, or fail with the reason."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} cannot be read: {error}")


def read_json(path: Path) -> Any:
    """Return a file's JSON, or fail with the reason."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        fail(f"{path} is not valid JSON: {error}")


def queries_of(skill: Path) -> list[tuple[str, bool]]:
    """Return query and whether it should trigger, mixed the same way each time."""
    data = read_json(skill / "evals" / "evals.json")
    triggers = data.get("triggers") if isinstance(data, dict) else None
    if not isinstance(triggers, dict) or not triggers.get("should") or not triggers.get("should_not"):
        fail(f"{skill}/evals/evals.json needs triggers.should and triggers.should_not")
    queries = [(query, True) for query in triggers["should"]]
    queries += [(query, False) for query in triggers["should_not"]]
    return sorted(queries, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())


def questions(options: argparse.Namespace) -> int:
    """Print the catalogue and the queries."""
    skills = {}
    files = options.catalogue.glob("*/SKILL.md") if options.catalogue else []
    for file in [*files, options.skill / "SKILL.md"]:
        matter = parse(read_text(file)).matter
        if matter.get("name") and matter.get("description"):
            skills[matter["name"]] = matter["description"]
    print(INTRODUCTION)
    print("Skills:")
    for name in sorted(skills):
        print(f"- {name}: {skills[name]}")
    print("\nQueries:")
    for number, (query, _) in enumerate(queries_of(options.skill), 1):
        print(f"{number}. {query}")
    return 0


def score(options: argparse.Namespace) -> int:
    """Print hits, misses and false alarms."""
    answers = read_json(options.answers)
    if not isinstance(answers, dict):
        fail(f'{options.answers} must be an object such as {{"1": "skill-name", "2": "none"}}')
    name = options.skill.resolve().name
    queries = queries_of(options.skill)
    missing = [str(number) for number in range(1, len(queries) + 1) if str(number) not in answers]
    if missing:
        fail(f"{options.answers} has no answer for {', '.join(missing)}")
    right = {True: 0, False: 0}
    wanted = {True: 0, False: 0}
    for number, (query, should) in enumerate(queries, 1):
        chosen = str(answers[str(number)])
        wanted[should] += 1
        if (chosen == name) == should:
            right[should] += 1
        else:
            print(f"missed (chose {chosen}): {query}" if should else f"false alarm: {query}")
    print(f"should trigger: {right[True]}/{wanted[True]}")
    print(f"near misses left alone: {right[False]}/{wanted[False]}")
    good = all(right[side] >= options.need * wanted[side] for side in right)
    return 0 if good else 1


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("questions", help=questions.__doc__)
    command.add_argument("skill", type=Path, help="the skill's folder")
    command.add_argument("--catalogue", type=Path, help="folder of other skills to choose from")
    command.set_defaults(run=questions)
    command = commands.add_parser("score", help=score.__doc__)
    command.add_argument("skill", type=Path, help="the skill's folder")
    command.add_argument("answers", type=Path, help="JSON file with the choices")
    command.add_argument("--need", type=float, default=0.9, help="share that must be right; default 0.9")
    command.set_defaults(run=score)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
