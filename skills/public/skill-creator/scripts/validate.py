#!/usr/bin/env python3
"""Check that a folder is a valid and complete skill.

Errors: front matter, name, description, files that are named but missing, scripts that do not compile, evals
that do not follow the schema, places that still say FILL IN. Warnings: long texts, files that SKILL.md does
not name, few evals or trigger queries. Exit code 0: no errors; 1: errors; 2: the folder cannot be read.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _front_matter import parse

KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
PRODUCT_KEYS = {"version", "dependencies", "required-secrets"}
"""Keys that DeerFlow reads beyond the public format."""
NAMED = re.compile(r"(?<![\w/.-])(?:references|scripts|templates|assets)/[\w./-]*\w\.\w+")
MAX_LINES = 500
MAX_BODY_CHARS = 20_000
MAX_FILE_BYTES = 10 * 1024 * 1024
MARK = "FILL" + " IN:"
LITTER = {"__pycache__", ".DS_Store", ".git", "node_modules", ".venv"}
Finding = tuple[str, str]


def check_matter(matter: dict[str, Any], folder: str) -> Iterator[Finding]:
    """Yield the findings on the front matter's keys."""
    name, description = matter.get("name"), matter.get("description")
    if not isinstance(name, str) or not re.fullmatch(r"[^\W_A-Z]+(-[^\W_A-Z]+)*", name) or len(name) > 64:
        yield "error", f"name {name!r}: use lower-case letters, digits and single hyphens, at most 64"
    elif name != folder:
        yield "error", f"name '{name}' differs from the folder's name '{folder}'"
    if not isinstance(description, str) or not description.strip():
        yield "error", "description is missing: say what the skill does and when to use it"
    else:
        yield from _check_description(description)
    compatibility = matter.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > 500:
        yield "error", "compatibility must be a text of at most 500 characters"
    if not isinstance(matter.get("metadata", {}), dict):
        yield "error", "metadata must have keys with text values"
    for key in sorted(set(matter) - KEYS):
        kind = (
            "DeerFlow reads it, other agents may not"
            if key in PRODUCT_KEYS
            else "unknown; put it under metadata"
        )
        yield ("warning" if key in PRODUCT_KEYS else "error"), f"front matter key '{key}': {kind}"


def _check_description(description: str) -> Iterator[Finding]:
    if len(description) > 1024:
        yield "error", f"description has {len(description)} characters, at most 1024 are allowed"
    words = len(description.split())
    if words < 8 and len(description) < 40:
        yield "warning", "description is very short: name what it does and the words users say"
    if words > 75:
        yield "warning", f"description has {words} words; about 60 are enough and every one costs context"
    if not re.search(r"\b(use|when|for)\b|用于|适用|当", description, re.I):
        yield "warning", "description does not say when to use the skill ('Use for …')"


def check_body(folder: Path, body: str) -> Iterator[Finding]:
    """Yield the findings on the text and the files that it names."""
    lines = len(body.splitlines())
    if not body.strip():
        yield "error", "SKILL.md has no text after the front matter"
    if lines >= MAX_LINES:
        yield "error", f"SKILL.md has {lines} lines; move depth to references/ (limit {MAX_LINES})"
    elif len(body) > MAX_BODY_CHARS:
        yield (
            "warning",
            f"SKILL.md has {len(body)} characters (about {len(body) // 4} tokens); aim at 5,000 tokens",
        )
    own = body.replace(f"/mnt/skills/public/{folder.name}/", " ").replace(
        f"/mnt/skills/custom/{folder.name}/", " "
    )
    for path in sorted(set(NAMED.findall(own))):
        if not (folder / path).is_file():
            yield "error", f"SKILL.md names {path}, which does not exist"
    for file in sorted([*folder.glob("references/**/*.md"), *folder.glob("scripts/[!_]*")]):
        if file.is_file() and file.name not in body:
            yield "warning", f"{file.relative_to(folder)} is not named in SKILL.md, so nobody will read it"


def check_files(folder: Path) -> Iterator[Finding]:
    """Yield the findings on single files."""
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        if LITTER.intersection(path.parts):
            if path.name in LITTER:
                yield "warning", f"{path} does not belong into a skill; remove it"
            continue
        if file.is_symlink():
            yield "error", f"{path} is a symbolic link; use a file"
        elif file.is_file():
            yield from _check_file(file, path)


def _check_file(file: Path, path: Path) -> Iterator[Finding]:
    if file.stat().st_size > MAX_FILE_BYTES:
        yield "error", f"{path} has more than {MAX_FILE_BYTES:,} bytes"
        return
    if file.name == "SKILL.md" and len(path.parts) > 1:
        yield "warning", f"{path}: a nested SKILL.md is data, it is not loaded as a skill"
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    if MARK in text:
        line = text.count("\n", 0, text.index(MARK)) + 1
        yield "error", f"{path}:{line} still says FILL IN"
    if file.suffix == ".py":
        try:
            ast.parse(text)
        except SyntaxError as error:
            yield "error", f"{path}:{error.lineno} is not valid Python: {error.msg}"


def check_evals(folder: Path) -> Iterator[Finding]:
    """Yield the findings on evals/evals.json."""
    file = folder / "evals" / "evals.json"
    if not file.is_file():
        yield "warning", "there is no evals/evals.json, so nobody can tell whether the skill helps"
        return
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        yield "error", f"evals/evals.json is not valid JSON: {error}"
        return
    cases = data.get("evals") if isinstance(data, dict) else None
    if not isinstance(cases, list):
        yield "error", "evals/evals.json needs the key 'evals' with a list of cases"
        return
    if data.get("skill_name") != folder.name:
        yield (
            "error",
            f"evals/evals.json: skill_name is {data.get('skill_name')!r}, the folder '{folder.name}'",
        )
    if len(cases) < 3:
        yield "warning", f"evals/evals.json has {len(cases)} cases; write at least 3"
    seen: set[str] = set()
    for number, case in enumerate(cases, 1):
        yield from _check_case(case, number, file.parent, seen)
    yield from _check_triggers(data.get("triggers"))


def _check_case(case: Any, number: int, folder: Path, seen: set[str]) -> Iterator[Finding]:
    if not isinstance(case, dict):
        yield "error", f"evals: case {number} is not an object"
        return
    place = f"evals: case {case.get('id', number)!r}"
    for key, kind in (("prompt", str), ("expected_output", str), ("assertions", list)):
        if not isinstance(case.get(key), kind) or not case[key]:
            yield "error", f"{place} has no '{key}'"
    if "id" not in case or str(case["id"]) in seen:
        yield "error", f"{place} needs an 'id' of its own"
    seen.add(str(case.get("id")))
    for name in case.get("files", []):
        if not (folder / str(name)).is_file():
            yield "error", f"{place} names {name}, which is not below evals/"


def _check_triggers(triggers: Any) -> Iterator[Finding]:
    if not isinstance(triggers, dict):
        yield "warning", "evals/evals.json has no 'triggers' (should, should_not)"
        return
    lists = {key: triggers.get(key) or [] for key in ("should", "should_not")}
    for key, queries in lists.items():
        if len(set(queries)) < 10:
            yield "warning", f"triggers.{key} has {len(set(queries))} different queries; write 10"
    for query in sorted(set(lists["should"]) & set(lists["should_not"])):
        yield "error", f"triggers: {query!r} is in should and in should_not"


def findings_of(folder: Path) -> list[Finding]:
    """Return all findings on a skill's folder, errors first."""
    try:
        text = (folder / "SKILL.md").read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return [("error", f"SKILL.md is not UTF-8: {error}")]
    except OSError:
        return [("error", f"{folder} has no readable SKILL.md")]
    document = parse(text)
    found = [("error", f"SKILL.md:{line}: {problem}") for line, problem in document.problems]
    found += check_matter(document.matter, folder.name) if document.matter else []
    found += [*check_body(folder, document.body), *check_files(folder), *check_evals(folder)]
    return sorted(found, key=lambda finding: finding[0])


def main() -> int:
    """Check the folder, print the findings, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the skill's folder")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if not folder.is_dir():
        print(f"error: {options.folder} is not a folder", file=sys.stderr)
        return 2
    found = findings_of(folder)
    errors = sum(kind == "error" for kind, _ in found)
    if options.format == "json":
        listed = [{"kind": kind, "text": text} for kind, text in found]
        print(json.dumps({"valid": not errors, "findings": listed}, ensure_ascii=False, indent=2))
    else:
        for kind, text in found:
            print(f"{kind}: {text}")
        print(f"{folder.name}: {errors} errors, {len(found) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
