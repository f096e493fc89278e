#!/usr/bin/env python3
"""Print the coverage table of a research project and the gaps that are left.

Exit code 0: every angle is covered; 1: there are gaps; 2: an input is wrong.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from _ledger import fail, host_of, normal_url, read_plan, read_sources

ADVICE = {
    "missing": "no opened source: search with other words, then open pages",
    "thin": "too few opened sources: open more pages",
    "one host": "all sources come from one publisher: find another",
    "one type": "all sources are of one type: find another kind (primary, academic, news, critics)",
    "old": "the newest source is older than the limit: search for the current year",
    "no opposing view": "nothing contradicts: search for criticism, failures, disputes",
}


def row(angle: dict[str, Any], sources: list[dict[str, Any]], oldest: int | None) -> dict[str, Any]:
    """Return one line of the table for an angle."""
    unique = {normal_url(source["url"]): source for source in sources}
    opened = [source for source in unique.values() if source.get("opened", False) is True]
    hosts = {host_of(source["url"]) for source in opened}
    types = Counter(source.get("type", "other") for source in opened)
    dates = sorted(source["date"] for source in opened if source.get("date"))
    least = angle.get("min_sources", 3)
    gaps = []
    if not opened:
        gaps.append("missing")
    elif len(opened) < least:
        gaps.append("thin")
    if opened and least > 1 and len(hosts) == 1:
        gaps.append("one host")
    if len(opened) >= 3 and len(types) == 1:
        gaps.append("one type")
    if oldest and dates and int(dates[-1][:4]) < oldest:
        gaps.append("old")
    return {
        "angle": angle["id"],
        "question": angle["question"],
        "opened": len(opened),
        "wanted": least,
        "not_opened": len(unique) - len(opened),
        "hosts": len(hosts),
        "types": dict(sorted(types.items())),
        "newest": dates[-1] if dates else "",
        "contradicting": sum(source.get("stance") == "contradicts" for source in opened),
        "gaps": gaps,
    }


def markdown(rows: list[dict[str, Any]], overall: list[str]) -> str:
    """Return the table and the next actions as Markdown."""
    lines = [
        "| Angle | Opened / wanted | Publishers | Types | Newest | Contradicting | Status |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        types = ", ".join(f"{name} {count}" for name, count in each["types"].items()) or "-"
        status = ", ".join(each["gaps"]) or "covered"
        lines.append(
            f"| {each['angle']} | {each['opened']} / {each['wanted']} | {each['hosts']} | {types} "
            f"| {each['newest'] or '-'} | {each['contradicting']} | {status} |"
        )
    actions = [f"- {each['angle']}: {ADVICE[gap]}" for each in rows for gap in each["gaps"]]
    actions += [f"- whole question: {ADVICE[gap]}" for gap in overall]
    return "\n".join([*lines, "", *(["Next:", *actions] if actions else ["Every angle is covered."])])


def main() -> int:
    """Read the files, print the table, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path, help="plan.json with question and angles")
    parser.add_argument("sources", type=Path, nargs="*", help="ledgers, one JSON object per line")
    parser.add_argument("--format", choices=("md", "json"), default="md", help="form of the output")
    parser.add_argument("--newest-from", type=int, metavar="YEAR", help="gap 'old' if all sources are older")
    options = parser.parse_args()
    plan = read_plan(options.plan)
    sources = read_sources([path for path in options.sources if path.exists() or "*" not in path.name])
    known = [angle["id"] for angle in plan["angles"]]
    for source in sources:
        if source["angle"] not in known:
            fail(f"{source['url']} names the angle '{source['angle']}'; the plan has {', '.join(known)}")
    rows = [
        row(angle, [source for source in sources if source["angle"] == angle["id"]], options.newest_from)
        for angle in plan["angles"]
    ]
    overall = [] if any(each["contradicting"] for each in rows) else ["no opposing view"]
    complete = not overall and not any(each["gaps"] for each in rows)
    if options.format == "json":
        result = {"complete": complete, "angles": rows, "overall_gaps": overall}
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        print(markdown(rows, overall))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
