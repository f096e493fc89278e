"""Shows a change for review: files, numbered lines, and hints where experience says to look twice."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from _diff import ChangedFile, parse, read_diff

LARGE = 400
GENERATED = re.compile(
    r"(?:^|/)(?:package-lock\.json|pnpm-lock\.yaml|go\.sum)$|\.(?:lock|min\.js|map|snap)$|_pb2\.py$"
)
TEST = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_[^/]+$|(?:_test|\.test|\.spec)\.\w+$")
SOURCE = re.compile(r"\.(?:py|js|jsx|ts|tsx|go|rs|java|kt|rb|php|c|cc|cpp|h|hpp|cs|swift|scala|sql|sh)$")
RULES: tuple[tuple[str, str, str], ...] = (
    (
        "secret",
        (
            r"(?i)(?:api[_-]?key|secret|passwd|password|token)\s*[:=]\s*['\"][^'\"\s]{8,}['\"]"
            r"|-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b"
        ),
        "a secret may be in the code",
    ),
    (
        "code-execution",
        r"\b(?:eval|exec)\s*\(|new Function\(|\bos\.system\(|shell\s*=\s*True|child_process\.exec\(",
        "runs code or a shell: can input reach it?",
    ),
    (
        "unsafe-load",
        r"\bpickle\.loads?\(|\byaml\.load\((?!.*SafeLoader)|\bmarshal\.loads?\(",
        "loads objects from data: is it trusted?",
    ),
    (
        "sql-text",
        r"(?i)(?:execute|query|raw)\w*\(\s*f?['\"].*\b(?:select|insert|update|delete)\b.*(?:\{|%s?['\"]\s*%|['\"]\s*\+)",
        "SQL is put together as text: use parameters",
    ),
    (
        "html-text",
        r"innerHTML\s*=|dangerouslySetInnerHTML|document\.write\(|\|\s*safe\b|mark_safe\(",
        "unescaped HTML: can input reach it?",
    ),
    (
        "tls-off",
        r"verify\s*=\s*False|rejectUnauthorized\s*:\s*false|InsecureSkipVerify\s*:\s*true|CERT_NONE",
        "certificates are not checked",
    ),
    (
        "weak-crypto",
        r"\b(?:md5|sha1)\s*\(|\bDES\b|\bECB\b|random\.(?:random|randint|choice)\(.*(?:token|secret|password)",
        "weak for security",
    ),
    (
        "broad-catch",
        r"except\s*:|except\s+(?:Base)?Exception\b(?!.*#)|catch\s*\(\s*(?:\w+\s+)?\w*\s*\)\s*\{\s*\}|_\s*=\s*err\b",
        "may hide errors",
    ),
    (
        "silenced",
        r"#\s*(?:noqa|type:\s*ignore|pylint:\s*disable|nosec)|eslint-disable|@ts-ignore|@SuppressWarnings",
        "a check is switched off: is the reason given?",
    ),
    (
        "test-skipped",
        r"@(?:pytest\.mark\.)?skip|\b(?:it|test|describe)\.(?:skip|only)\(|@Ignore\b|@Disabled\b|t\.Skip\(",
        "a test does not run",
    ),
    (
        "sleep",
        r"\btime\.sleep\(|\bsleep\(\d|Thread\.sleep\(|setTimeout\([^,]+,\s*\d{4,}",
        "waits for time instead of a fact",
    ),
    (
        "debug",
        r"\bconsole\.(?:log|debug)\(|\bdebugger\b|\bbreakpoint\(\)|\bpdb\.set_trace\(|^\s*print\(|fmt\.Println\(|var_dump\(",
        "left over from debugging?",
    ),
    ("todo", r"\b(?:TODO|FIXME|XXX|HACK)\b", "unfinished"),
    (
        "schema",
        r"(?i)\b(?:drop\s+(?:table|column)|truncate\s+table|alter\s+table|delete\s+from\s+\w+\s*;)",
        "changes the database: can it be undone and run beside the old version?",
    ),
    (
        "float-money",
        r"(?i)\bfloat\s*\(?.*(?:price|amount|total|balance)|(?:price|amount|total|balance)\w*\s*[:=]\s*float",
        "money as floating point",
    ),
    ("mutable-default", r"def \w+\(.*=\s*(?:\[\]|\{\}|set\(\))", "a default that all calls share"),
)


def main() -> None:
    """Print the change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repo", type=Path, default=Path(), help="folder of the git repository (default: here)"
    )
    parser.add_argument(
        "--base", help="compare HEAD with where it left this branch, e.g. main; absent: uncommitted changes"
    )
    parser.add_argument("--staged", action="store_true", help="only what is staged for the next commit")
    parser.add_argument(
        "--diff", type=Path, help="read a diff from a file (- for standard input) instead of git"
    )
    parser.add_argument("--file", action="append", help="show only this file; may be repeated")
    parser.add_argument("--summary", action="store_true", help="files and hints only, without lines")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    files = parse(read_diff(options.diff, options.repo, options.base, options.staged))
    chosen = [file for file in files if not options.file or file.path in options.file]
    report = {"files": [_describe(file) for file in chosen], "notes": _notes(files)}
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    _print(report, chosen, lines=not options.summary)


def _describe(file: ChangedFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "status": file.status,
        "added": len(file.added),
        "removed": len(file.removed),
        "kind": "generated"
        if GENERATED.search(file.path)
        else "test"
        if TEST.search(file.path)
        else "source"
        if SOURCE.search(file.path)
        else "other",
        "hints": _hints(file),
    }


def _hints(file: ChangedFile) -> list[dict[str, Any]]:
    rules = RULES if SOURCE.search(file.path) and not GENERATED.search(file.path) else RULES[:1]
    test = bool(TEST.search(file.path))
    return [
        {"line": line.number, "rule": rule, "hint": words}
        for line in file.added
        for rule, pattern, words in rules
        if re.search(pattern, line.text) and not (test and rule == "debug")
    ]


def _notes(files: list[ChangedFile]) -> list[str]:
    source = [
        file
        for file in files
        if SOURCE.search(file.path) and not TEST.search(file.path) and not GENERATED.search(file.path)
    ]
    tests = [file for file in files if TEST.search(file.path)]
    size = sum(len(file.added) + len(file.removed) for file in files if not GENERATED.search(file.path))
    notes = []
    if source and not any(file.added for file in tests):
        notes.append(f"{len(source)} source files change, no test is added or extended")
    gone = sum(
        bool(re.search(r"\bassert\b|\bexpect\(", line.text)) for file in tests for line in file.removed
    )
    new = sum(bool(re.search(r"\bassert\b|\bexpect\(", line.text)) for file in tests for line in file.added)
    if gone > new:
        notes.append(f"{gone} assertions are removed from tests, {new} are added")
    if size > LARGE:
        notes.append(f"{size} changed lines: review file by file, or ask for smaller parts")
    notes += [f"{file.path} is binary: not reviewed" for file in files if file.binary]
    return notes


def _print(report: dict[str, Any], files: list[ChangedFile], *, lines: bool) -> None:
    for file, described in zip(files, report["files"], strict=True):
        print(
            f"\n== {file.path} ({file.status}, {described['kind']}, +{described['added']} "
            f"-{described['removed']})"
        )
        for hint in described["hints"]:
            print(f"   hint, line {hint['line']}: {hint['rule']}: {hint['hint']}")
        if lines and described["kind"] != "generated":
            for line in file.lines:
                print(f"{line.number:6}{line.mark} {line.text}")
    for note in report["notes"]:
        print(f"\nnote: {note}")


if __name__ == "__main__":
    main()
