"""Checks review findings against the diff (file, line, quoted code) and writes them as a Markdown review."""

import argparse
import json
from pathlib import Path
from typing import Any

from _diff import ChangedFile, parse, read_diff, stop

SEVERITIES = ("blocker", "major", "minor", "nit")
NEAR = 3


def main() -> None:
    """Write the review; refuse findings that do not fit the diff."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "findings",
        type=Path,
        help=(
            "JSON: {summary, findings: [{file, line, severity, title, problem, suggestion?, code?}], praise?}"
        ),
    )
    parser.add_argument("--out", type=Path, required=True, help="the .md to write")
    parser.add_argument(
        "--repo", type=Path, default=Path(), help="folder of the git repository (default: here)"
    )
    parser.add_argument("--base", help="as in changes.py")
    parser.add_argument("--staged", action="store_true", help="as in changes.py")
    parser.add_argument("--diff", type=Path, help="as in changes.py")
    options = parser.parse_args()
    files = {
        file.path: file for file in parse(read_diff(options.diff, options.repo, options.base, options.staged))
    }
    review = _read(options.findings)
    problems = [
        words for number, one in enumerate(review["findings"], 1) for words in _check(number, one, files)
    ]
    if problems:
        stop("these findings do not fit the diff:\n" + "\n".join(f"- {words}" for words in problems))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(_markdown(review), encoding="utf-8")
    counts = {level: sum(one["severity"] == level for one in review["findings"]) for level in SEVERITIES}
    print(json.dumps({"file": str(options.out), "verdict": _verdict(counts), "counts": counts}, indent=1))


def _read(path: Path) -> dict[str, Any]:
    try:
        review = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(f"{path} cannot be read: {error}")
    if (
        not isinstance(review, dict)
        or not isinstance(review.get("findings"), list)
        or not review.get("summary")
    ):
        stop(f"{path.name} must be an object with 'summary' and 'findings' (a list, it may be empty)")
    return review


def _check(number: int, one: Any, files: dict[str, ChangedFile]) -> list[str]:
    if not isinstance(one, dict):
        return [f"finding {number} is no object"]
    missing = [key for key in ("file", "severity", "title", "problem") if not one.get(key)]
    if missing:
        return [f"finding {number} needs {', '.join(missing)}"]
    if one["severity"] not in SEVERITIES:
        return [f"finding {number}: severity {one['severity']!r}; use one of {', '.join(SEVERITIES)}"]
    file = files.get(one["file"])
    if file is None:
        return [f"finding {number}: {one['file']} is not in the diff; the files are {', '.join(files)}"]
    line = one.get("line")
    if line is None:
        return []
    shown = {entry.number: entry.text for entry in file.lines if entry.mark != "-"}
    gone = {entry.number: entry.text for entry in file.removed}
    if line not in shown and line not in gone:
        return [f"finding {number}: line {line} of {one['file']} is not in the diff"]
    code = one.get("code")
    near = [text for lines in (shown, gone) for place, text in lines.items() if abs(place - line) <= NEAR]
    if code and not any(str(code).strip() in text for text in near):
        return [f"finding {number}: {str(code)[:60]!r} is not at line {line} of {one['file']}"]
    return []


def _verdict(counts: dict[str, int]) -> str:
    if counts["blocker"]:
        return "request changes"
    return "approve after changes" if counts["major"] else "approve"


def _markdown(review: dict[str, Any]) -> str:
    findings = review["findings"]
    counts = {level: sum(one["severity"] == level for one in findings) for level in SEVERITIES}
    said = ", ".join(f"{number} {level}" for level, number in counts.items() if number) or "no findings"
    lines = ["# Code review", "", f"**Verdict: {_verdict(counts)}** ({said})", "", str(review["summary"]), ""]
    for level in SEVERITIES:
        for one in (one for one in findings if one["severity"] == level):
            place = f"{one['file']}:{one['line']}" if one.get("line") else one["file"]
            lines += [f"## {level}: {one['title']}", "", f"`{place}`", ""]
            if one.get("code"):
                lines += ["```", str(one["code"]), "```", ""]
            lines += [str(one["problem"]), ""]
            if one.get("suggestion"):
                lines += ["Suggestion:", "", str(one["suggestion"]), ""]
    if review.get("praise"):
        lines += ["## Good", "", *(f"- {words}" for words in review["praise"]), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
