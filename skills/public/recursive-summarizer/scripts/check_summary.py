#!/usr/bin/env python3
"""Find numbers, dates and quotations of a summary that its source does not contain.

Line references such as [book.txt 210-233] are checked against the length of the named file; parts of a source
that no reference covers are listed when the summary uses references. Sums that the writer computed show up as
unknown numbers: look at each.
Exit code 0: nothing found; 1: something to look at; 2: an input is wrong.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from _text import fail, read

REFERENCE = re.compile(r"\[([^\[\]\s]+(?: [^\[\]\s]+)*?)\s+(?:lines?\s+)?(\d+)(?:\s*[-–]\s*(\d+))?\]")
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d(?:[\d,.]*\d)?(?![A-Za-z0-9_])")
QUOTE = re.compile(r"“([^”]{12,})”|\"([^\"\n]{12,})\"|「([^」]{6,})」")
PARTS = 10


def plain_number(text: str) -> str:
    """Return a number in one spelling: '12,500.0' and '12500' are the same."""
    bare = text.replace(",", "").rstrip(".")
    return bare.rstrip("0").rstrip(".") if "." in bare else bare


def squeeze(text: str) -> str:
    """Return a text for comparison: lower case, plain quotes, single spaces."""
    return " ".join(text.lower().replace("’", "'").split())


def unknown_numbers(summary: str, source: str) -> list[str]:
    """Return the numbers of the summary that the source does not have; list markers do not count."""
    known = {plain_number(match[0]) for match in NUMBER.finditer(source)}
    body = re.sub(r"^\s*\d+[.)]\s", "", REFERENCE.sub("", summary), flags=re.M)
    found = dict.fromkeys(match[0].rstrip(".,") for match in NUMBER.finditer(body))
    return [number for number in found if plain_number(number) not in known]


def unknown_quotes(summary: str, source: str) -> list[str]:
    """Return the quotations that are not in the source word for word."""
    known = squeeze(source)
    quotes = [next(part for part in match.groups() if part) for match in QUOTE.finditer(summary)]
    return [quote for quote in quotes if squeeze(quote).rstrip(".,;。，") not in known]


def references(summary: str, lines: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return wrong references, and parts of the sources that no reference covers."""
    wrong, covered = [], {name: set[int]() for name in lines}
    for match in REFERENCE.finditer(summary):
        name, first, last = match[1], int(match[2]), int(match[3] or match[2])
        if name not in lines:
            continue
        if not 1 <= first <= last <= lines[name]:
            wrong.append(f"{match[0]}: {name} has {lines[name]} lines")
        covered[name].update(range(first, min(last, lines[name]) + 1))
    bare = []
    for name, count in lines.items():
        if not any(covered.values()) or count < PARTS:
            continue
        for part in range(PARTS):
            first, last = part * count // PARTS + 1, (part + 1) * count // PARTS
            if not covered[name].intersection(range(first, last + 1)):
                bare.append(f"{name} lines {first}-{last}")
    return wrong, bare


def main() -> int:
    """Check the summary, print the findings, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("summary", type=Path)
    parser.add_argument(
        "--source", type=Path, nargs="+", required=True, metavar="FILE", help="the source texts"
    )
    parser.add_argument("--encoding", default="utf-8", help="of the sources; default utf-8")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    summary = read(options.summary, "utf-8")
    if not summary.strip():
        fail(f"{options.summary} is empty")
    sources = {path.name: read(path, options.encoding) for path in options.source}
    together = "\n".join(sources.values())
    wrong, bare = references(
        summary, {name: text.rstrip("\n").count("\n") + 1 for name, text in sources.items()}
    )
    result = {
        "numbers not in the source": unknown_numbers(summary, together),
        "quotations not in the source": unknown_quotes(summary, together),
        "wrong line references": wrong,
        "parts without a reference": bare,
    }
    if options.format == "json":
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        for name, found in result.items():
            for each in found:
                print(f"{name}: {each}")
        if not any(result.values()):
            print("numbers, quotations and references agree with the source")
    return 1 if any(result.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
